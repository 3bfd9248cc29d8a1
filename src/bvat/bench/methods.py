"""Point 1: the epoch of each method against the epoch of our GCN, on one graph."""

from __future__ import annotations

from typing import Any

from bvat.bench.epochs import epoch_action, settings_of
from bvat.bench.plan import Effort
from bvat.bench.timing import interleave
from bvat.graph import Graph


def measure_methods(
    graph: Graph, dataset: str, methods: tuple[str, ...], effort: Effort
) -> dict[str, dict[str, Any]]:
    """Return the times and the settings of each method; one epoch of each in turn."""
    settings = {method: settings_of(dataset, method) for method in methods}
    actions = {method: epoch_action(graph, settings[method]) for method in methods}
    times = interleave(actions, effort)
    return {method: {**times[method].summary(), "settings": settings[method].as_dict()} for method in methods}
