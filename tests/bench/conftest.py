"""A plan so small that everything is measured in seconds, with cells in the process of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from bvat.bench import growth, spaces
from bvat.bench.cell import measure
from bvat.bench.plan import ROWS, SPACES, Budget, Growth, Plan
from bvat.data import save_graph, synthetic_graph

FEW = Budget(warmup=1, rounds=2, seconds=0.0, min_rounds=2)


@pytest.fixture(scope="session")
def graph_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graphs") / "tiny.npz"
    save_graph(synthetic_graph(nodes=120, edges=300, features=40, classes=3, train_per_class=5), path)
    return path


@pytest.fixture
def plan(graph_file: Path) -> Plan:
    return Plan(
        datasets=(str(graph_file),),
        methods=tuple(ROWS),
        spaces=SPACES,
        method_budget=FEW,
        pyg_budget=FEW,
        space_budget=FEW,
        memory_epochs=1,
        compiled_datasets=("tiny",),
        compiled_widths=(8, 16),
        compiled_budget=FEW,
        growth=Growth(
            edges=(1600, 3200, 6400),
            features=(50, 100),
            hidden=(8, 16),
            base_edges=1600,
            base_features=100,
            fit_edges_from=3200,
            budget=FEW,
        ),
    )


@pytest.fixture
def _cells_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure cells in this process; another test starts a real one."""
    monkeypatch.setattr(spaces, "run_cell", measure)
    monkeypatch.setattr(growth, "run_cell", measure)
    monkeypatch.setattr(spaces.os, "cpu_count", lambda: 1)
