"""``bvat predict`` and ``bvat audit`` as a user meets them: three commands, and what goes wrong."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from inference_files import CLASSES, COLUMNS, expect, quietly, read_csv, rows_of, train, write_folder

import bvat
from bvat.audit.audit import audit_batches
from bvat.data import save_graph
from bvat.inference import open_run
from bvat.report.audit_page import marked, median_text
from bvat.training.provenance import versions
from cli_helpers import bvat as call


def test_predictions_by_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(["predict", str(folder / "run-obvat"), "--out", "p.csv"], capsys)
    assert code == 0
    first, second = out.splitlines()
    assert first == "p.csv: 120 nodes of pages, predicted by the mean of 2 models"
    interval = r"\(95 % interval [\d.]+ to [\d.]+ on 22 nodes\)"
    assert re.fullmatch(rf"accuracy [\d.]+ % {interval}, macro F1 [\d.]+ % on 22 test nodes", second)
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


def test_scores_where_labels_are_known(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["predict", str(folder / "run-gcn"), "--out", "p.csv", "--json"]
    own = json.loads(call(command, capsys)[1])["scores"]
    assert (own["nodes"], own["of"]) == (22, "test nodes")
    assert [entry["class"] for entry in own["f1"]] == list(CLASSES)
    assert own["macro_f1"] == pytest.approx(np.mean([entry["f1"] for entry in own["f1"]]))
    nodes, edges = rows_of(60)
    write_folder(Path("half"), nodes, edges)
    other = json.loads(call([*command, "--graph", "half"], capsys)[1])["scores"]
    rows = read_csv(Path("p.csv"))
    own_graph = open_run(folder / "run-gcn").graph()
    seen = {f"page-{k}" for k in [*own_graph.train.tolist(), *own_graph.val.tolist()]}
    pairs = [(row["predicted"], node["label"]) for row, node in zip(rows, nodes, strict=True)
             if row["id"] not in seen and node["label"]]  # fmt: skip
    assert (other["nodes"], other["of"]) == (len(pairs), "nodes with a label")
    assert other["nodes"] + other["trained_on"] == 45
    assert other["accuracy"] == pytest.approx(100 * np.mean([a == b for a, b in pairs]))


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
    train(str(tmp_path / "gone"), "--epochs", "5", out=str(tmp_path / "run"))
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
    assert err == "bvat: p.csv cannot be written (No space left on device): choose another location\n"
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
    columns = "id,predicted,label,confidence,field_size,lds,smallest,smallest_relative,becomes"
    assert ",".join(rows[0]) == columns
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
    assert f'<th scope="row">{most_fragile["id"]}</th>' in page
    assert "0 of 120 nodes" in page
    assert not Path("a.csv.part").exists()


def test_a_certified_audit_has_two_norms_for_each_budget(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["audit", str(folder / "run-gcn"), "--certify", "--nodes", "20", "--out", "c.csv"]
    _, out, err = call([*command, "--page", "c.html", "--json"], capsys)
    assert err.strip() == ""
    rows, page = read_csv(Path("c.csv")), Path("c.html").read_text("utf-8")
    (about,) = json.loads(out)["runs"]
    for budget, ending in (("graph", ""), ("rows", "_rows"), ("node", "_node")):
        for name in ("certified", "smallest"):
            values = sorted(float(row[name + ending] or "inf") for row in rows)
            assert about["budgets"][budget][f"median_{name}"] == pytest.approx(values[9], rel=1e-4)
        assert all(
            float(row[f"certified{ending}"]) < float(row[f"smallest{ending}"] or "inf") for row in rows
        )
        medians = about["budgets"][budget]
        assert f"{medians['median_certified']:.3g} to {medians['median_smallest']:.3g}" in page
        assert f"Nodes that keep their class, budget {budget}" in page
    _, out, _ = call(command, capsys)
    assert "budget node" in out


def test_a_model_without_a_certificate_leaves_no_unfinished_audit(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--model", "gat", "--method", "none", "--epochs", "2", "--no-report", "--val", "23"]
    quietly(["train", str(folder / "pages"), *options, "--jobs", "1", "--out", "gat"])
    code, _, err = call(["audit", "gat", "--certify", "--out", "g.csv"], capsys)
    assert code == 2
    assert "there is no certificate for GAT" in err
    assert not list(Path().glob("g.csv*"))


def test_a_median_says_for_how_many_nodes_nothing_was_found() -> None:
    few, none = torch.tensor([0.5, 2.0, math.inf]), torch.tensor([1.0, math.inf, math.inf])
    assert median_text(few) == "2 (none found for 1 of 3 nodes)"
    assert median_text(none) == "none found for 2 of 3 nodes"
    assert median_text(few[:0]) == "-"


def test_an_interrupted_audit_continues(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the end the table is that of an audit that was left alone."""
    module = sys.modules["bvat.audit.audit"]  # the name in the package is the function
    monkeypatch.setattr(module, "LAYERED_ROWS_AT_ONCE", 100)  # a few nodes at a time
    run = ["audit", str(folder / "run-gcn"), "--compare", str(folder / "run-obvat"), "--nodes", "40"]
    quietly([*run, "--out", "whole.csv", "--page", "whole.html"])
    capsys.readouterr()
    whole, batches = Path("whole.csv").read_text(), []

    def stops(*arguments: Any, **options: Any) -> Any:
        for number, part in enumerate(audit_batches(*arguments, **options)):
            if number == 2:
                raise KeyboardInterrupt
            batches.append(part.nodes.numel())
            yield part

    monkeypatch.setattr("bvat.audit.kept.audit_batches", stops)
    for attempt in range(2):
        code, _, err = call([*run, "--out", "a.csv"], capsys)
        assert code == 130
        done = sum(batches)
        assert 0 < done < 40
        assert f"note: {done} of 40 nodes of run-gcn are kept in a.csv" in err
        assert err.endswith("run the same command again to continue after the finished nodes\n")
        assert not Path("a.csv").exists()
        assert len(batches) == 2 * attempt + 2
    different = "a.csv.part holds an unfinished audit with another"
    expect([*run, "--out", "a.csv", "--epsilon", "0.2"], f"{different} epsilon", capsys)
    expect([*run[:2], *run[4:], "--out", "a.csv"], f"{different} model", capsys)
    expect([*run, "--out", "a.csv", "--nodes", "7"], f"{different} choice of nodes", capsys)
    with Path("a.csv.part").open("ab") as file:
        file.write(b'{"model":0,"nodes":[1')  # killed while it wrote
    again = []
    monkeypatch.setattr(
        "bvat.audit.kept.audit_batches", lambda *a, **k: again.append(k["nodes"]) or audit_batches(*a, **k)
    )
    quietly([*run, "--out", "a.csv", "--page", "a.html"])
    assert [nodes.numel() for nodes in again] == [40 - done, 40]
    assert Path("a.csv").read_text() == whole
    page, expected = (Path(name).read_text() for name in ("a.html", "whole.html"))
    assert page == expected.replace("whole.", "a.")
    assert sorted(path.name for path in Path().iterdir()) == ["a.csv", "a.html", "whole.csv", "whole.html"]
    Path("a.csv.part").write_text("mine\n")
    capsys.readouterr()
    expect([*run, "--out", "a.csv"], "a.csv.part does not hold an unfinished audit: remove it", capsys)


def test_audit_says_the_same_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(
        ["audit", str(folder / "run-gcn"), "--out", "a.csv", "--nodes", "20", "--json"], capsys
    )
    assert code == 0
    (about,) = json.loads(out)["runs"]
    assert json.loads(out)["versions"] == versions()
    rows = read_csv(Path("a.csv"))
    assert about["nodes"] == len(rows) == 20
    smallest = sorted(float(row["smallest"]) for row in rows)
    assert about["median_smallest"] == pytest.approx(smallest[9], rel=1e-4)
    assert about["median_lds"] == pytest.approx(sorted(float(row["lds"]) for row in rows)[9], rel=1e-4)
    assert math.isclose(float(about["epsilon"]), 0.03)


def test_the_better_of_two_values_is_marked() -> None:
    low = {"median_lds": 0.1, "median_smallest": 0.5, "tenth_smallest": None}  # None: not found, so it is far
    high = {"median_lds": 0.2, "median_smallest": 0.4, "tenth_smallest": 0.1}
    assert marked("", "median_lds", [low, high]) == ["", "▲ 0.1", "0.2"]
    assert marked("", "median_smallest", [high, low]) == ["", "0.4", "▲ 0.5"]
    assert marked("", "tenth_smallest", [low, high]) == ["", "▲ none found", "0.1"]
    assert marked("", "median_lds", [low, low]) == ["", "0.1", "0.1"]


def test_a_run_without_a_recipe_takes_a_folder_with_as_many_features(tmp_path: Path) -> None:
    """A graph that was built in Python says nothing about how its features were made."""
    graph = bvat.load(write_folder(tmp_path / "pages", *rows_of(60)))
    save_graph(replace(graph, recipe={}), tmp_path / "mine.npz")
    train("./mine.npz", "--epochs", "2")
    quietly(["predict", "run", "--graph", "pages", "--out", "a.csv"])
    quietly(["predict", "run", "--out", "b.csv"])
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()


def test_names_are_escaped_on_the_page(tmp_path: Path) -> None:
    nodes, edges = rows_of(45)
    for row in nodes:
        row["id"], row["label"] = f"<b>{row['id']}", row["label"] and f"<i>{row['label']}"
    write_folder(tmp_path / "odd", nodes, [(f"<b>{a}", f"<b>{b}") for a, b in edges])
    train("odd", "--epochs", "3")
    quietly(["audit", "run", "--out", "a.csv", "--page", "a.html"])
    page = Path("a.html").read_text("utf-8")
    assert "&lt;b&gt;page-" in page
    assert "<b>page-" not in page
    assert "<i>" not in page


def test_a_run_on_a_data_set_of_the_paper_is_loaded_by_name(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its graph is not copied, and one that has changed is not taken for it."""
    from bvat.inference import runs
    from bvat.store.folder import RunFolder
    from bvat.store.store import SeedTrainer, train_seeds

    graph = bvat.load(folder / "pages", train_per_class=15)
    named = replace(graph, name="cora", recipe={})
    settings = bvat.preset("cora", "none", epochs=2)
    run = RunFolder(tmp_path / "run")
    run.start(named, settings, resume=False)
    train_seeds(SeedTrainer(run, named, settings), [0], 1)
    assert not (run.path / "graph.npz").exists()
    monkeypatch.setattr(runs, "load", lambda name, like=None: named)
    assert open_run(run.path).graph() is named
    quietly(["predict", "run", "--out", "x.csv"])
    capsys.readouterr()
    shorter = replace(named, test=named.test[1:])
    monkeypatch.setattr(runs, "load", lambda name, like=None: shorter)
    expect(["predict", "run", "--out", "x.csv"], "use --graph cora to predict it anyway", capsys)
    quietly(["predict", "run", "--graph", "cora", "--out", "x.csv"])


def test_nodes_that_the_model_was_trained_on_do_not_count(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["predict", str(folder / "run-gcn"), "--out", "p.csv"]
    _, out, _ = call([*command, "--graph", str(folder / "pages")], capsys)
    assert "on 22 nodes with a label; 68 nodes that the model was trained on do not count" in out
    assert re.search(r"accuracy [\d.]+ % \(95 % interval [\d.]+ to [\d.]+ on 22 nodes\)", out)
    nodes, edges = rows_of(30, seed=1)
    for node in nodes:
        node["id"] = f"new-{node['id']}"
    renamed = [(f"new-{a}", f"new-{b}") for a, b in edges]
    _, out, _ = call([*command, "--graph", str(write_folder(tmp_path / "new", nodes, renamed))], capsys)
    assert "on 22 nodes with a label, all new to the model" in out
    used = open_run(folder / "run-gcn").graph()
    seen = {used.node_names[k] for k in [*used.train.tolist(), *used.val.tolist()]}  # type: ignore[index]
    nodes, edges = rows_of(120)
    for node in nodes:
        node["label"] = node["label"] if node["id"] in seen else ""
    _, out, _ = call([*command, "--graph", str(write_folder(tmp_path / "seen", nodes, edges))], capsys)
    assert "no accuracy: the model was trained on all 68 nodes with a label" in out


def test_without_ids_training_nodes_are_recognised_by_position_and_features(tmp_path: Path) -> None:
    graph = bvat.synthetic_graph(60, 150, features=20, classes=3, train_per_class=5, val=10, test=20)
    save_graph(graph, tmp_path / "own.npz")
    train(str(tmp_path / "own.npz"), "--epochs", "3")
    opened = open_run("run")
    found = opened.trained_on(graph)
    assert found is not None
    assert found.nonzero().flatten().tolist() == sorted([*graph.train.tolist(), *graph.val.tolist()])
    turned = bvat.synthetic_graph(60, 150, features=20, classes=3, train_per_class=5, val=10, seed=1)
    assert opened.trained_on(turned) is None
    small = bvat.synthetic_graph(30, 60, features=20, classes=3, train_per_class=5)
    assert opened.trained_on(small) is None


def test_unknown_training_nodes_are_mentioned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (0, 1):
        graph = bvat.synthetic_graph(60, 150, features=20, classes=3, train_per_class=5, seed=seed)
        save_graph(graph, tmp_path / f"{seed}.npz")
    train("0.npz", "--epochs", "3")
    capsys.readouterr()
    _, out, _ = call(["predict", "run", "--graph", "1.npz", "--out", "p.csv"], capsys)
    assert "on 60 nodes with a label; some of them may be nodes that the model was trained on" in out


def test_a_run_without_test_nodes_has_no_accuracy(capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(Path("pages"), *rows_of(40))
    quietly(["train", "pages", "--method", "lp", "--out", "run", "--jobs", "1"])
    capsys.readouterr()
    _, out, _ = call(["predict", "run", "--out", "p.csv"], capsys)
    assert out.endswith("no accuracy: no test nodes were held out\n")
