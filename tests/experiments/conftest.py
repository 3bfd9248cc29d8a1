"""A small graph in a file, so that no test needs the network."""

from __future__ import annotations

from pathlib import Path

import pytest

from bvat.data import save_graph, synthetic_graph
from bvat.graph import Graph


@pytest.fixture(scope="session")
def small() -> Graph:
    return synthetic_graph(nodes=120, edges=300, features=40, classes=3, train_per_class=5, val=30, test=40)


@pytest.fixture(scope="session")
def small_file(small: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graphs") / "small.npz"
    save_graph(small, path)
    return path
