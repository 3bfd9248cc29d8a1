"""A plan so small that everything is measured in seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    )
