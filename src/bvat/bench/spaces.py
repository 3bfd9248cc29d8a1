"""Factored, sparse and dense perturbations: time side by side, peak memory in separate processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bvat.bench.cell import Cell, run_cell
from bvat.bench.epochs import epoch_action, settings_of
from bvat.bench.plan import Budget, Plan
from bvat.bench.timing import interleave
from bvat.engine.sparse import SparseMatrix
from bvat.graph import Graph

SETTLE_BELOW_MS = 200.0


def reason_against(graph: Graph, space: str, max_dense_gb: float) -> str | None:
    """Return why a space cannot be measured on a graph, or None if it can."""
    copy_gb = graph.num_nodes * graph.num_features * 4 / 1e9
    if space == "dense" and copy_gb > max_dense_gb:
        return f"one copy of a dense {graph.num_nodes} x {graph.num_features} matrix takes {copy_gb:.0f} GB"
    if space == "sparse" and not isinstance(graph.features, SparseMatrix):
        return "the features are not sparse"
    return None


def measure_spaces(
    graph: Graph, source: str, dataset: str, plan: Plan, log: Callable[[str], None]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return times and peak memory of every method and space, and what was skipped and why.

    Args:
        graph: the graph.
        source: where the processes that measure memory read it from.
        dataset: the name of its presets.
        plan: what to measure.
        log: called with what is being measured.

    Returns:
        ``{method: {space: measured}}``, where measured has the times of :meth:`Times.summary`, ``peak_mb``
        and ``process_peak_mb`` (see :func:`run_cell`), or is None if the space was skipped.
    """
    measured: dict[str, dict[str, Any]] = {}
    skipped: list[str] = []
    reasons = {space: reason_against(graph, space, plan.max_dense_gb) for space in plan.spaces}
    skipped += [f"{dataset}, space {space}: {why}" for space, why in reasons.items() if why]
    settings = {
        (method, space): settings_of(dataset, method).replace(space=space)
        for method in plan.space_methods
        for space in plan.spaces
        if reasons[space] is None
    }
    for method in plan.space_methods:
        log(f"{dataset}: {method} in the spaces {', '.join(s for m, s in settings if m == method)}")
        actions = {s: epoch_action(graph, settings[m, s]) for m, s in settings if m == method}
        times = interleave(actions, plan.space_budget, settle_below_ms=SETTLE_BELOW_MS)
        measured[method] = {s: times[s].summary() if s in times else None for s in plan.spaces}

    log(f"{dataset}: peak memory of {len(settings)} processes")
    budget = Budget(warmup=1, rounds=plan.memory_epochs, seconds=0.0, min_rounds=plan.memory_epochs)
    cells = [Cell(source, chosen.as_dict(), budget) for chosen in settings.values()]
    # memory does not depend on what else runs: one process per core, but few, because memory is limited
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        for (method, space), cell in zip(settings, pool.map(run_cell, cells), strict=True):
            if "reason" in cell:
                skipped.append(f"{dataset}, memory of {method} in space {space}: {cell['reason']}")
            for key in ("peak_mb", "process_peak_mb"):
                measured[method][space][key] = cell.get(key)
    return measured, skipped
