"""Two runs on a folder of CSV files, and a working folder of its own for every test."""

from __future__ import annotations

from pathlib import Path

import pytest
from inference_files import quietly, rows_of, write_folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``pages`` with CSV files, and ``run-obvat`` (two seeds) and ``run-gcn`` trained on them."""
    root = tmp_path_factory.mktemp("answers")
    write_folder(root / "pages", *rows_of(120))
    common = ["train", str(root / "pages"), "--epochs", "40", "--device", "cpu", "--jobs", "1", "--no-report"]
    common += ["--train-per-class", "15", "--val", "23"]
    quietly([*common, "--method", "obvat", "--seeds", "2", "--out", str(root / "run-obvat")])
    quietly([*common, "--method", "none", "--out", str(root / "run-gcn")])
    return root


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
