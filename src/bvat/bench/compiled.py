"""What the compiled kernels gain: the epoch of each method without and with them, by hidden width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bvat.bench.epochs import epoch_action, settings_of
from bvat.bench.plan import Budget
from bvat.bench.timing import Action, interleave
from bvat.engine.compiled.backend import plain
from bvat.graph import Graph
from bvat.training.settings import Settings


def measure_compiled(
    graph: Graph, dataset: str, methods: Sequence[str], widths: Sequence[int], budget: Budget
) -> list[dict[str, Any]]:
    """Time plain and compiled epochs in turn, in this process.

    Args:
        graph: the graph to train on.
        dataset: the name of its presets.
        methods: rows of the benchmark, see :data:`bvat.bench.plan.ROWS`.
        widths: numbers of hidden units.
        budget: how long to measure each pair.

    Returns:
        one row per method and width with the medians ``plain_ms``, ``compiled_ms``, ``plain_cpu_ms`` and
        ``compiled_cpu_ms``, and the ratios plain / compiled, ``ratio`` and ``cpu_ratio``.
    """
    rows = []
    for method in methods:
        for width in widths:
            settings = settings_of(dataset, method).replace(hidden=width)
            actions = {"plain": plain_action(graph, settings), "compiled": epoch_action(graph, settings)}
            times = {name: each.summary() for name, each in interleave(actions, budget).items()}
            row: dict[str, Any] = {"dataset": dataset, "method": method, "hidden": width}
            for unit, ratio in (("ms", "ratio"), ("cpu_ms", "cpu_ratio")):
                slow, fast = (times[name][f"epoch_{unit}"] for name in ("plain", "compiled"))
                row |= {f"plain_{unit}": slow, f"compiled_{unit}": fast, ratio: slow / fast if fast else None}
            rows.append(row)
    return rows


def plain_action(graph: Graph, settings: Settings) -> Action:
    """Return an action that runs the next epoch without compiled kernels."""
    with plain():
        epoch = epoch_action(graph, settings)

    def action() -> float:
        with plain():
            return epoch()

    return action
