"""``bvat predict`` and ``bvat audit`` as a user meets them: three commands, and what goes wrong."""

from __future__ import annotations

import csv
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inference_files import CLASSES, COLUMNS, rows_of, write_folder

import bvat
from bvat.cli.main import main
from bvat.data import save_graph
from bvat.inference import open_run
from bvat.inference.tables import AUDIT_COLUMNS

Call = Callable[[list[str]], tuple[int, str, str]]


def call(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def quietly(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert not ended.value.code


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``pages`` with CSV files, and ``run-obvat`` (two seeds) and ``run-gcn`` trained on them."""
    root = tmp_path_factory.mktemp("answers")
    write_folder(root / "pages", *rows_of(120))
    common = ["train", str(root / "pages"), "--epochs", "40", "--device", "cpu", "--jobs", "1"]
    quietly([*common, "--method", "obvat", "--seeds", "2", "--out", str(root / "run-obvat")])
    quietly([*common, "--method", "gcn", "--out", str(root / "run-gcn")])
    return root


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_predictions_by_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(["predict", str(folder / "run-obvat"), "--out", "p.csv"], capsys)
    assert code == 0
    assert out == "p.csv: 120 nodes of pages, predicted by the mean of 2 models\n"
    rows = read_csv(Path("p.csv"))
    assert list(rows[0]) == ["id", "predicted", "confidence", *(f"p_{name}" for name in CLASSES)]
    assert [row["id"] for row in rows] == [f"page-{k}" for k in range(120)]
    for row in rows:
        probabilities = [float(row[f"p_{name}"]) for name in CLASSES]
        assert sum(probabilities) == pytest.approx(1, abs=1e-5)
        assert float(row["confidence"]) == max(probabilities)
        assert row["predicted"] == CLASSES[int(np.argmax(probabilities))]
    right = [row["predicted"] == CLASSES[k % 3] for k, row in enumerate(rows)]
    assert sum(right[90:]) > 24  # the 30 nodes without a label


def test_one_seed_and_all_seeds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for name, options in {"0": ["--seed", "0"], "1": ["--seed", "1"], "all": []}.items():
        arguments = ["predict", str(folder / "run-obvat"), "--out", f"{name}.csv", "--json", *options]
        code, out, _ = call(arguments, capsys)
        assert code == 0
        assert json.loads(out)["seeds"] == ([0, 1] if name == "all" else [int(name)])
        found[name] = np.array([float(row["p_chess"]) for row in read_csv(Path(f"{name}.csv"))])
    assert not np.allclose(found["0"], found["1"])
    assert np.allclose(found["all"], (found["0"] + found["1"]) / 2, atol=1e-5)


def test_the_own_graph_is_predicted_when_its_files_are_gone(folder: Path, tmp_path: Path) -> None:
    write_folder(tmp_path / "gone", *rows_of(60))
    quietly(
        ["train", str(tmp_path / "gone"), "--epochs", "5", "--device", "cpu", "--out", str(tmp_path / "run")]
    )
    quietly(["predict", str(tmp_path / "run"), "--graph", str(tmp_path / "gone"), "--out", "before.csv"])
    shutil.rmtree(tmp_path / "gone")
    quietly(["predict", str(tmp_path / "run"), "--out", "after.csv"])
    assert Path("before.csv").read_bytes() == Path("after.csv").read_bytes()


def test_a_changed_graph_with_a_new_node(folder: Path, tmp_path: Path) -> None:
    nodes, edges = rows_of(120)
    new = {"id": "brand new", "label": "", **dict.fromkeys(COLUMNS, 0), **dict.fromkeys(COLUMNS[8:16], 1)}
    edges = [*edges, *[("brand new", f"page-{k}") for k in (1, 4, 7)]]  # all of class botany
    changed = write_folder(tmp_path / "changed", [new, *nodes[:100]], [e for e in edges if _inside(e, 100)])
    quietly(["predict", str(folder / "run-obvat"), "--graph", str(changed), "--out", "p.csv"])
    rows = read_csv(Path("p.csv"))
    assert len(rows) == 101
    assert (rows[0]["id"], rows[0]["predicted"]) == ("brand new", "botany")
    # a class that no node of the changed graph has is still known
    few = [row for row in nodes[:90] if row["label"] != "chess"]
    names = {row["id"] for row in few}
    write_folder(tmp_path / "few", few, [e for e in edges if set(e) <= names])
    quietly(["predict", str(folder / "run-obvat"), "--graph", str(tmp_path / "few"), "--out", "few.csv"])
    assert list(read_csv(Path("few.csv"))[0])[3:] == [f"p_{name}" for name in CLASSES]


def _inside(edge: tuple[str, str], count: int) -> bool:
    return all(not end.startswith("page-") or int(end[5:]) < count for end in edge)


def test_overwriting_is_all_or_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("p.csv").write_text("precious")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        code, _, err = call(["predict", str(folder / "run-gcn"), "--out", "p.csv"], capsys)
    assert code == 2
    assert err == "bvat: p.csv cannot be written (No space left on device): choose another place\n"
    assert Path("p.csv").read_text() == "precious"
    assert [path.name for path in Path().iterdir()] == ["p.csv"]
    quietly(["predict", str(folder / "run-gcn"), "--out", "p.csv"])
    assert len(read_csv(Path("p.csv"))) == 120


def test_audit_table_and_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["audit", str(folder / "run-obvat"), "--compare", str(folder / "run-gcn"), "--epsilon", "0.05"]
    code, out, err = call([*command, "--out", "a.csv", "--page", "sub/a.html"], capsys)
    assert (code, err.strip()) == (0, "")
    assert out.endswith("a.csv, sub/a.html\n")
    rows = read_csv(Path("a.csv"))
    assert tuple(rows[0]) == AUDIT_COLUMNS
    assert [row["id"] for row in rows] == [f"page-{k}" for k in range(120)]
    assert [row["label"] for row in rows[89:91]] == [CLASSES[89 % 3], ""]
    for row in rows:
        assert float(row["lds"]) >= 0
        assert float(row["smallest"]) > 0
        assert row["becomes"] in set(CLASSES) - {row["predicted"]}
    page = Path("sub/a.html").read_text("utf-8")
    for words in ("run-obvat", "run-gcn", "Comparison", "Distribution", "The most fragile nodes", "<svg"):
        assert words in page
    assert "<script" not in page
    most_fragile = min(rows, key=lambda row: float(row["smallest"]))
    assert f"<h3>{most_fragile['id']}</h3>" in page


def test_audit_says_the_same_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(
        ["audit", str(folder / "run-gcn"), "--out", "a.csv", "--nodes", "20", "--json"], capsys
    )
    assert code == 0
    (about,) = json.loads(out)["runs"]
    rows = read_csv(Path("a.csv"))
    assert about["nodes"] == len(rows) == 20
    smallest = sorted(float(row["smallest"]) for row in rows)
    assert about["median_smallest"] == pytest.approx(smallest[9], rel=1e-4)
    assert about["median_lds"] == pytest.approx(sorted(float(row["lds"]) for row in rows)[9], rel=1e-4)
    assert math.isclose(float(about["epsilon"]), 0.03)


def test_names_are_escaped_on_the_page(tmp_path: Path) -> None:
    nodes, edges = rows_of(45)
    for row in nodes:
        row["id"], row["label"] = f"<b>{row['id']}", row["label"] and f"<i>{row['label']}"
    write_folder(tmp_path / "odd", nodes, [(f"<b>{a}", f"<b>{b}") for a, b in edges])
    quietly(["train", "odd", "--epochs", "3", "--device", "cpu", "--out", "run"])
    quietly(["audit", "run", "--out", "a.csv", "--page", "a.html"])
    page = Path("a.html").read_text("utf-8")
    assert "&lt;b&gt;page-" in page
    assert "<b>page-" not in page
    assert "<i>" not in page


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


BAD_RUNS = {
    "older": (without("classes"), "does not say its classes, so it is of an older bvat: train again"),
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


def expect(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(arguments, capsys)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.startswith("bvat: ")
    assert err.count("\n") == 1


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
    "class": "the model knows no class 'golf'",
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
    (["predict", "RUN", "--out", "FILE/x.csv"], "is a file: choose another place"),
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
        quietly(["train", "pages", "--epochs", "2", "--device", "cpu", "--out", str(other)])
        capsys.readouterr()
    places = {
        "RUN": str(folder / "run-gcn"),
        "DIR": "folder",
        "FILE/x.csv": "file/x.csv",
        "OTHER": str(other),
    }
    expect([places.get(word, word) for word in arguments], sentence, capsys)


def test_a_run_on_a_data_set_of_the_paper_is_loaded_by_name(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its graph is not copied, and one that has changed is not taken for it."""
    from bvat.inference import runs
    from bvat.training.run_folder import RunFolder
    from bvat.training.seeds import Job, train_seeds

    graph = bvat.load(folder / "pages")
    named = bvat.Graph(**{**vars_of(graph), "name": "cora", "recipe": {}})
    settings = bvat.preset("cora", "gcn", epochs=2)
    run = RunFolder(tmp_path / "run")
    run.start(named, settings, resume=False)
    train_seeds(Job(named, settings, run, False, 1, "cpu"), [0], 1, lambda seed, epoch: None)
    assert not (run.path / "graph.npz").exists()
    monkeypatch.setattr(runs, "load", lambda name, like=None: named)
    assert open_run(run.path).graph() is named
    quietly(["predict", "run", "--out", "x.csv"])
    capsys.readouterr()
    shorter = bvat.Graph(**{**vars_of(named), "test": named.test[1:]})
    monkeypatch.setattr(runs, "load", lambda name, like=None: shorter)
    expect(["predict", "run", "--out", "x.csv"], "say --graph cora if that is meant", capsys)
    quietly(["predict", "run", "--graph", "cora", "--out", "x.csv"])


def vars_of(graph: bvat.Graph) -> dict[str, Any]:
    from dataclasses import fields

    return {field.name: getattr(graph, field.name) for field in fields(graph)}
