"""A finished run folder with a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from bvat.cli.main import main
from bvat.data import save_graph, synthetic_graph


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    graph = synthetic_graph(nodes=220, edges=660, features=60, classes=4, val=40, test=100)
    save_graph(graph, folder / "small.npz")
    command = ["train", str(folder / "small.npz"), "--seeds", "2", "--jobs", "1", "--epochs", "12"]
    command += ["--method", "obvat", "--json"]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--out", str(folder / "run")])
    assert ended.value.code == 0
    return folder / "run"
