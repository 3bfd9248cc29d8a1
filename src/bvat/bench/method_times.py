"""The epoch of each method, to compare with the epoch of a plain GCN, on one graph."""

from __future__ import annotations

from typing import Any

from bvat.bench.epochs import epoch_action, settings_of
from bvat.bench.plan import Budget
from bvat.bench.timing import interleave
from bvat.graph import Graph


def measure_methods(
    graph: Graph, dataset: str, methods: tuple[str, ...], budget: Budget
) -> dict[str, dict[str, Any]]:
    """Return the times and settings of each method; one epoch of each in turn."""
    settings = {method: settings_of(dataset, method) for method in methods}
    actions = {method: epoch_action(graph, settings[method]) for method in methods}
    times = interleave(actions, budget)
    return {method: {**times[method].summary(), "settings": settings[method].as_dict()} for method in methods}
