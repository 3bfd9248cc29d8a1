"""A plan so small that everything is measured in seconds, with cells in the process of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from bvat.bench import cell
from bvat.bench.plan import ROWS, BenchPlan, Budget
from bvat.data import save_graph, synthetic_graph

FEW = Budget(warmup=1, rounds=2, seconds=0.0, min_rounds=2)


@pytest.fixture(scope="session")
def graph_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graphs") / "tiny.npz"
    save_graph(synthetic_graph(nodes=120, edges=300, features=40, classes=3, train_per_class=5), path)
    return path


@pytest.fixture
def plan(graph_file: Path) -> BenchPlan:
    return BenchPlan(
        datasets=(str(graph_file),),
        methods=tuple(ROWS),
        method_budget=FEW,
        pyg_budget=FEW,
        memory_epochs=1,
        compiled_datasets=("tiny",),
        compiled_widths=(8, 16),
        compiled_budget=FEW,
    )


@pytest.fixture
def _cells_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure cells in this process; another test starts a real one."""
    monkeypatch.setattr(cell, "run_cell", cell.measure)
    monkeypatch.setattr(cell.os, "cpu_count", lambda: 1)
