"""A plan so small that everything is measured in seconds, with cells in the process of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from bvat.bench import growth, spaces
from bvat.bench.cell import measure
from bvat.bench.plan import METHODS, SPACES, Effort, Growth, Plan
from bvat.data import save_graph, synthetic_graph

FEW = Effort(warmup=1, rounds=2, seconds=0.0, least=2)


@pytest.fixture(scope="session")
def graph_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graphs") / "tiny.npz"
    save_graph(synthetic_graph(nodes=120, edges=300, features=40, classes=3, train_per_class=5), path)
    return path


@pytest.fixture
def plan(graph_file: Path) -> Plan:
    return Plan(
        datasets=(str(graph_file),),
        methods=METHODS,
        spaces=SPACES,
        method_effort=FEW,
        pyg_effort=FEW,
        space_effort=FEW,
        memory_epochs=1,
        growth=Growth(
            edges=(1600, 3200, 6400),
            features=(50, 100),
            hidden=(8, 16),
            base_edges=1600,
            base_features=100,
            fit_edges_from=3200,
            effort=FEW,
        ),
    )


@pytest.fixture
def _cells_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure cells without a process each; one test elsewhere starts a real one."""
    monkeypatch.setattr(spaces, "run_cell", measure)
    monkeypatch.setattr(growth, "run_cell", measure)
    monkeypatch.setattr(spaces.os, "cpu_count", lambda: 1)
