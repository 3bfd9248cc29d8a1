"""The table of bad inputs of ``bvat predict`` and ``bvat audit``, and the sentence that each gets."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from inference_files import expect, rows_of, train, write_folder
from safetensors.torch import load_file, save_file

import bvat
from bvat.data import save_graph
from bvat.data.checksums import read_sealed_json, sha256, write_sealed_json
from bvat.training.provenance import digest


def damaged(folder: Path, tmp_path: Path, change: Callable[[Path], Any]) -> str:
    """Return a copy of a run folder with something changed."""
    copy = tmp_path / "copy"
    shutil.copytree(folder / "run-gcn", copy)
    change(copy)
    return str(copy)


def with_settings(**changes: Any) -> Callable[[Path], Any]:
    def change(run: Path) -> None:
        about = read_sealed_json(run / "settings.json")
        about["settings"] |= changes
        write_sealed_json(run / "settings.json", about)
        result = {
            **read_sealed_json(run / "seed-0/result.json"),
            "identity": digest([about["graph"], about["settings"]]),
        }
        write_sealed_json(run / "seed-0/result.json", result)

    return change


def with_about(**changes: Any) -> Callable[[Path], Any]:
    def change(run: Path) -> None:
        write_sealed_json(run / "settings.json", {**read_sealed_json(run / "settings.json"), **changes})

    return change


def edited(name: str, old: str, new: str) -> Callable[[Path], Any]:
    """Change a file by hand, which its checksum does not allow."""

    def change(run: Path) -> None:
        content = (run / name).read_text()
        assert old in content
        (run / name).write_text(content.replace(old, new, 1))

    return change


def flipped(name: str, place: int) -> Callable[[Path], Any]:
    """Flip one bit of a file."""

    def change(run: Path) -> None:
        content = bytearray((run / name).read_bytes())
        content[place] ^= 1
        (run / name).write_bytes(content)

    return change


def another_graph(run: Path) -> None:
    """Replace the graph of a run by an intact file with another split."""
    graph = bvat.data.load_graph(run / "graph.npz")
    save_graph(replace(graph, train=graph.val, val=graph.train), run / "graph.npz")


def no_finite_weights(run: Path) -> None:
    """Write weights that are not finite, with their checksum."""
    path = run / "seed-0/weights.safetensors"
    save_file({name: tensor * float("inf") for name, tensor in load_file(path).items()}, path)
    result = read_sealed_json(run / "seed-0/result.json")
    files = {**result["files"], path.name: sha256(path.read_bytes())}
    write_sealed_json(run / "seed-0/result.json", {**result, "files": files})


BAD_RUNS = {
    "results only": (
        with_about(keep="result"),
        "keeps results without weights: train the model with bvat train",
    ),
    "unfinished": (
        lambda run: (run / "seed-0/result.json").unlink(),
        "no finished seed: finish it with bvat train",
    ),
    "not json": (lambda run: (run / "settings.json").write_text("{"), "settings.json cannot be read"),
    "not an object": (lambda run: (run / "settings.json").write_text("[]"), "it is not a JSON object"),
    "nested": (lambda run: (run / "settings.json").write_text("[" * 100_000), "it is nested too deeply"),
    "edited settings": (
        edited("settings.json", "chess", "cheese"),
        "settings.json cannot be read (its checksum",
    ),
    "settings are a list": (with_about(settings=[1]), "is damaged (settings is not an object): train again"),
    "classes are a number": (with_about(classes=3), "is damaged (classes is not a list): train again"),
    "classes are numbers": (with_about(classes=[3]), "its class names are not a list of texts"),
    "features are a text": (with_about(features="x"), "(features is not a whole number): train again"),
    "features beyond memory": (with_about(features=2**40), "is damaged (it names no classes, or no features"),
    "no features": (with_about(features=0), "is damaged (it names no classes, or no features): train again"),
    "no classes": (with_about(classes=[]), "is damaged (it names no classes, or no features): train again"),
    "model beyond memory": (
        with_settings(hidden=2**16, layers=1000),
        "do not fit the model 'gcn' described beside them: train again",
    ),
    "graph is null": (with_about(graph=None), "is damaged (graph is not a text): train again"),
    "wrong setting": (
        with_settings(hidden="x"),
        "with settings that are not valid here (hidden must be of type",
    ),
    "edited result": (edited("seed-0/result.json", "epoch", "Epoch"), "train this seed again"),
    "flipped weights": (
        flipped("seed-0/weights.safetensors", -2),
        "does not have the checksum in result.json",
    ),
    "flipped graph": (flipped("graph.npz", 5000), "graph.npz is damaged (its checksum is wrong)"),
    "another graph": (another_graph, "graph.npz is not the graph that the run was trained on"),
    "no finite weights": (no_finite_weights, "are not finite numbers: train again with a lower lr"),
    "no weights": (lambda run: (run / "seed-0/weights.safetensors").unlink(), "train this seed again"),
    "bad weights": (
        lambda run: (run / "seed-0/weights.safetensors").write_text("?"),
        "train this seed again",
    ),
    "other shape": (with_settings(hidden=7), "do not fit the model 'gcn' described beside them: train again"),
    "newer setting": (
        with_settings(magic=1),
        "settings that are not valid here (there is no setting 'magic'",
    ),
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
        train("pages", "--epochs", "2", out=str(other))
        capsys.readouterr()
    places = {
        "RUN": str(folder / "run-gcn"),
        "DIR": "folder",
        "FILE/x.csv": "file/x.csv",
        "OTHER": str(other),
    }
    expect([places.get(word, word) for word in arguments], sentence, capsys)
