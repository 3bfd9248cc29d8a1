"""The table of bad inputs of ``bvat predict`` and ``bvat audit``, and the sentence that each gets."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inference_files import expect, quietly, rows_of, write_folder

import bvat
from bvat.data import save_graph


def damaged(folder: Path, tmp_path: Path, change: Callable[[Path], Any]) -> str:
    """Return a copy of a run folder with something changed."""
    copy = tmp_path / "copy"
    shutil.copytree(folder / "run-gcn", copy)
    change(copy)
    return str(copy)


def without(*keys: str) -> Callable[[Path], Any]:
    def change(run: Path) -> None:
        about = json.loads((run / "settings.json").read_text())
        (run / "settings.json").write_text(json.dumps({k: v for k, v in about.items() if k not in keys}))

    return change


def with_settings(**changes: Any) -> Callable[[Path], Any]:
    def change(run: Path) -> None:
        about = json.loads((run / "settings.json").read_text())
        about["settings"] |= changes
        (run / "settings.json").write_text(json.dumps(about))

    return change


def with_about(**changes: Any) -> Callable[[Path], Any]:
    def change(run: Path) -> None:
        about = json.loads((run / "settings.json").read_text())
        (run / "settings.json").write_text(json.dumps({**about, **changes}))

    return change


BAD_RUNS = {
    "older": (without("classes"), "lacks its classes because an older bvat wrote it: train again"),
    "results only": (
        with_about(keep="result"),
        "keeps results without weights: train the model with bvat train",
    ),
    "unfinished": (
        lambda run: (run / "seed-0/result.json").unlink(),
        "no finished seed: finish it with bvat train",
    ),
    "not json": (lambda run: (run / "settings.json").write_text("{"), "settings.json cannot be read"),
    "no weights": (lambda run: (run / "seed-0/weights.safetensors").unlink(), "train this seed again"),
    "bad weights": (
        lambda run: (run / "seed-0/weights.safetensors").write_text("?"),
        "train this seed again",
    ),
    "other shape": (with_settings(hidden=7), "do not fit the model 'gcn' described beside them: train again"),
    "newer setting": (with_settings(magic=1), "with settings that this version does not know"),
    "no graph": (
        lambda run: (run / "graph.npz").unlink(),
        "graph.npz is missing: give the graph with --graph",
    ),
    "bad graph": (lambda run: (run / "graph.npz").write_text("?"), "is damaged or not a graph of bvat"),
}


@pytest.mark.parametrize("command", ["predict", "audit"])
@pytest.mark.parametrize("case", BAD_RUNS)
def test_bad_runs_get_a_sentence(
    case: str, command: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, sentence = BAD_RUNS[case]
    expect([command, damaged(folder, tmp_path, change), "--out", "x.csv"], sentence, capsys)
    assert not Path("x.csv").exists()


def bad_graph(kind: str, tmp_path: Path) -> str:
    """Write a graph that the model of ``run-gcn`` cannot be used on."""
    nodes, edges = rows_of(120)
    match kind:
        case "column missing":
            nodes = [{k: v for k, v in row.items() if k != "word3"} for row in nodes]
        case "column more":
            nodes = [{**row, "word99": 1} for row in nodes]
        case "class":
            nodes[0]["label"] = "golf"
        case "features":
            path = tmp_path / "other.npz"
            save_graph(bvat.synthetic_graph(nodes=100, edges=200, features=30, classes=3), path)
            return str(path)
        case "class names":
            path = tmp_path / "other.npz"
            save_graph(bvat.synthetic_graph(nodes=100, edges=200, features=24, classes=3), path)
            return str(path)
        case "nothing":
            return "no-such-graph"
    return str(write_folder(tmp_path / "bad", nodes, edges))


BAD_GRAPHS = {
    "column missing": "column 'word3': the model was trained with this column: add it",
    "column more": "column 'word99': the model was trained without this column: remove it",
    "class": "the model does not know class 'golf'",
    "features": "has 30 features, but the model was trained with 24: give a graph with the same features",
    "class names": "has a class '0', which the model does not know",
    "nothing": "there is no data set or file 'no-such-graph'",
}


@pytest.mark.parametrize("kind", BAD_GRAPHS)
def test_graphs_that_do_not_fit_get_a_sentence(
    kind: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = bad_graph(kind, tmp_path)
    expect(["predict", str(folder / "run-gcn"), "--graph", graph, "--out", "x.csv"], BAD_GRAPHS[kind], capsys)
    assert not Path("x.csv").exists()


BAD_OPTIONS = [
    (["predict", "RUN", "--out", "DIR"], "is a folder: give the name of a file"),
    (["predict", "RUN", "--out", "FILE/x.csv"], "is a file: choose another location"),
    (["predict", "RUN"], "Missing option '--out'"),
    (["predict", "--out", "x.csv"], "Missing argument"),
    (["predict", "RUN", "--out", "x.csv", "--seed", "7"], "has no finished seed 7: use one of 0"),
    (["predict", "RUN", "--out", "x.csv", "--seed", "-1"], "--seed"),
    (
        ["predict", "nowhere", "--out", "x.csv"],
        "nowhere is not a run folder: give the folder that bvat train",
    ),
    (["audit", "nowhere", "--out", "x.csv"], "nowhere is not a run folder"),
    (["audit", "RUN", "--out", "DIR"], "is a folder: give the name of a file"),
    (["audit", "RUN", "--out", "x.csv", "--page", "DIR"], "is a folder: give the name of a file"),
    (
        ["audit", "RUN", "--out", "x.csv", "--epsilon", "-1"],
        "epsilon must be finite and not negative, not -1",
    ),
    (["audit", "RUN", "--out", "x.csv", "--epsilon", "nan"], "epsilon must be finite"),
    (["audit", "RUN", "--out", "x.csv", "--epsilon", "inf"], "epsilon must be finite"),
    (["audit", "RUN", "--out", "x.csv", "--nodes", "0"], "--nodes"),
    (["audit", "RUN", "--out", "x.csv", "--compare", "nowhere"], "nowhere is not a run folder"),
    (["audit", "RUN", "--out", "x.csv", "--compare", "OTHER"], "were trained on different graphs or splits"),
    (["audit", "RUN", "--out", "x.csv", "--seed", "3"], "has no finished seed 3"),
]


@pytest.mark.parametrize(("arguments", "sentence"), BAD_OPTIONS, ids=lambda value: str(value)[:60])
def test_bad_options_get_a_sentence(
    arguments: list[str], sentence: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    other = tmp_path / "other"
    if "OTHER" in arguments:
        write_folder(tmp_path / "pages", *rows_of(60))
        quietly(
            ["train", "pages", "--method", "gcn", "--epochs", "2", "--device", "cpu", "--out", str(other)]
        )
        capsys.readouterr()
    places = {
        "RUN": str(folder / "run-gcn"),
        "DIR": "folder",
        "FILE/x.csv": "file/x.csv",
        "OTHER": str(other),
    }
    expect([places.get(word, word) for word in arguments], sentence, capsys)
