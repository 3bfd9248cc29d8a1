"""A graph and a budget so small that everything is measured in seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from bvat.data import save_graph, synthetic_graph


@pytest.fixture(scope="session")
def graph_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graphs") / "tiny.npz"
    save_graph(synthetic_graph(nodes=120, edges=300, features=40, classes=3, train_per_class=5), path)
    return path
