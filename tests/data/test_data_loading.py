from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from data_files import NELL, nell_files, planetoid_files

from bvat.data import load, names, readers, save_graph, synthetic_graph
from bvat.errors import DataError

CHOICES = f"use cora, citeseer, pubmed, nell, or the path of {readers.ACCEPTED}"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("coar", "there is no data set or file 'coar' (did you mean cora?): "),
        ("Pub-Med", "there is no data set or file 'Pub-Med' (did you mean pubmed?): "),
        ("imagenet", "there is no data set or file 'imagenet': "),
        ("", "there is no data set or file '': "),
        ("no/such/file.npz", "there is no data set or file 'no/such/file.npz': "),
        ("nul\0byte", "there is no data set or file 'nul\\x00byte': "),
        ("x" * 5000, "there is no data set or file 'xxx"),
        (None, "a data set must be a name or a path, not None: "),
        (7, "a data set must be a name or a path, not 7: "),
    ],
)
def test_unknown_names(name: Any, message: str) -> None:
    with pytest.raises(DataError) as caught:
        load(name)
    assert str(caught.value).startswith(message)
    assert str(caught.value).endswith(CHOICES)


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph = synthetic_graph(50, 80, train_per_class=2)
    save_graph(graph, "mine.npz")
    for path in ("mine.npz", Path("mine.npz"), str(tmp_path / "mine.npz")):
        assert repr(load(path)) == repr(graph)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert repr(load("~/mine.npz")) == repr(graph)
    (tmp_path / "mine.txt").write_text("a,b")
    for path in ("mine.txt", "."):
        with pytest.raises(DataError, match="cannot be read as a graph: give a folder with nodes"):
            load(path)


def test_a_name_wins_over_a_file_and_a_path_over_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use_registry: Any, cache: Path
) -> None:
    use_registry()
    _put(cache, planetoid_files())
    monkeypatch.chdir(tmp_path)
    Path("tiny").write_text("not a graph")
    assert load("tiny").num_nodes == load(" TINY").num_nodes == 14
    for path in ("./tiny", Path("tiny")):
        with pytest.raises(DataError, match="cannot be read as a graph"):
            load(path)


def test_names() -> None:
    assert names() == ("cora", "citeseer", "pubmed", "nell")


def _put(folder: Path, files: dict[str, bytes], *but: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        if name not in but:
            (folder / name).write_bytes(data)


def test_the_best_labels_of_nell_are_used(
    tmp_path: Path, use_registry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_registry()
    raw = tmp_path / "raw"
    monkeypatch.setenv("BVAT_DATA", str(raw))
    said = []
    for absent in ((f"{NELL}ally", "nell.0.001.recovered_labels.npz"), (f"{NELL}ally",), ()):
        _put(raw, nell_files(), *absent)
        said.append(load("nell").validation.split(" (")[0])
    assert said == ["no validation labels", "recovered labels", "official validation labels"]


@pytest.mark.slow
def test_importing_the_data_package_is_light() -> None:
    code = "import sys, bvat.data; print([m for m in ('requests', 'rich', 'typer') if m in sys.modules])"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.strip() == "[]"
