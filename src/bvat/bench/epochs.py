"""Epochs of the methods, in turn, and without and with compiled kernels.

An epoch is the same ``run_epoch`` that ``bvat train`` calls: the training step and the evaluation after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bvat.bench.plan import Budget, settings_of
from bvat.bench.timing import Action, interleave
from bvat.graph import Graph
from bvat.training.loop import run_epoch
from bvat.training.settings import Settings
from bvat.training.state import start_training


def epoch_action(graph: Graph, settings: Settings) -> Action:
    """Return an action that runs the next epoch and returns the time of its training step."""
    state = start_training(graph, settings)
    return lambda: run_epoch(state)["ms"]


def measure_methods(
    graph: Graph, dataset: str, methods: Sequence[str], budget: Budget
) -> dict[str, dict[str, Any]]:
    """Return the times and settings of each row of the benchmark; one epoch of each in turn."""
    settings = {method: settings_of(dataset, method) for method in methods}
    actions = {method: epoch_action(graph, settings[method]) for method in methods}
    times = interleave(actions, budget)
    return {method: {**times[method].summary(), "settings": settings[method].as_dict()} for method in methods}


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
    rows, graphs = [], {"plain": graph.with_engine("tensor"), "compiled": graph}
    for method in methods:
        for width in widths:
            settings = settings_of(dataset, method, hidden=width)
            actions = {name: epoch_action(each, settings) for name, each in graphs.items()}
            times = {name: each.summary() for name, each in interleave(actions, budget).items()}
            row: dict[str, Any] = {"dataset": dataset, "method": method, "hidden": width}
            for unit, ratio in (("ms", "ratio"), ("cpu_ms", "cpu_ratio")):
                slow, fast = (times[name][f"epoch_{unit}"] for name in ("plain", "compiled"))
                row |= {f"plain_{unit}": slow, f"compiled_{unit}": fast, ratio: slow / fast if fast else None}
            rows.append(row)
    return rows
