"""Factored, sparse and dense perturbations: time side by side, peak memory in separate processes.

python benchmarks/spaces.py cora citeseer pubmed nell --out results/bench/spaces.json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from bvat.bench.measure import Budget, epoch_action, interleave, machine, settings_of
from bvat.data import load
from bvat.data.files import write_json
from bvat.engine.sparse import SparseMatrix
from bvat.graph import Graph
from bvat.store.pool import thread_count
from bvat.training.provenance import versions
from bvat.training.settings import short_name
from cell import Cell, run_cells

SPACES = ("factored", "sparse", "dense")
METHODS = ("vat", "sbvat", "obvat")
BUDGET = Budget(warmup=1, rounds=50, seconds=8.0, min_rounds=3)
MEMORY_BUDGET = Budget(warmup=1, rounds=3, seconds=0.0, min_rounds=3)
SETTLE_BELOW_MS = 200.0
DENSE_AT_MOST_GB = 4.0


def reason_against(graph: Graph, space: str, most_gb: float = DENSE_AT_MOST_GB) -> str | None:
    """Return why a space cannot be measured on a graph, or None if it can."""
    copy_gb = graph.num_nodes * graph.num_features * 4 / 1e9
    if space == "dense" and copy_gb > most_gb:
        return f"one copy of a dense {graph.num_nodes} x {graph.num_features} matrix takes {copy_gb:.0f} GB"
    if space == "sparse" and not isinstance(graph.features, SparseMatrix):
        return "the features are not sparse"
    return None


def measure_spaces(
    source: str, budget: Budget = BUDGET, memory: Budget = MEMORY_BUDGET
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return times and peak memory of every method and space, and what was skipped and why.

    Returns:
        ``{method: {space: measured}}``, where measured has the times of :meth:`Times.summary`, ``peak_mb``
        and ``process_peak_mb`` (see :func:`cell.run_cell`), and the ratios ``over_factored`` and
        ``memory_over_factored``.
    """
    graph, name = load(source), short_name(source)
    reasons = {space: reason_against(graph, space) for space in SPACES}
    skipped = [f"{name}, space {space}: {why}" for space, why in reasons.items() if why]
    spaces = [space for space in SPACES if not reasons[space]]
    measured: dict[str, dict[str, Any]] = {}
    for method in METHODS:
        actions = {space: epoch_action(graph, settings_of(name, method, space=space)) for space in spaces}
        times = interleave(actions, budget, settle_below_ms=SETTLE_BELOW_MS)
        cells = run_cells([Cell(source, name, method, memory, {"space": space}) for space in spaces])
        rows = {space: times[space].summary() for space in spaces}
        for space, cell in zip(spaces, cells, strict=True):
            if "reason" in cell:
                skipped.append(f"{name}, memory of {method} in space {space}: {cell['reason']}")
                continue
            rows[space] |= {key: cell[key] for key in ("peak_mb", "process_peak_mb")}
        for space in spaces:
            for key, ratio in (("epoch_ms", "over_factored"), ("peak_mb", "memory_over_factored")):
                if rows[space].get(key) and rows["factored"].get(key):
                    rows[space][ratio] = rows[space][key] / rows["factored"][key]
        measured[method] = rows
    return measured, skipped


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    spaces: dict[str, Any] = {}
    skipped: list[str] = []
    with thread_count(1):
        for source in asked.graphs:
            spaces[short_name(source)], without = measure_spaces(source)
            skipped += without
        about = {"machine": machine(), "versions": versions()}
    write_json(asked.out, {"spaces": spaces, "skipped": skipped, **about})


if __name__ == "__main__":
    main(sys.argv[1:])
