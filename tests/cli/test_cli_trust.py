"""``bvat review``, ``bvat suggest`` and ``bvat predict --coverage``."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import bvat as library
from cli_helpers import bvat


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trust")
    graph = library.synthetic_graph(nodes=150, edges=400, features=30, classes=3, train_per_class=10)
    done = library.run(graph, "auto", folder=folder / "run", effort=1)
    return done.path


def test_predict_writes_sets(run: Path, tmp_path: Path, capsys: Any) -> None:
    code, out, _ = bvat(["predict", str(run), "--coverage", "0.8", "--out", str(tmp_path / "p.csv")], capsys)
    assert code == 0
    assert "sets for a coverage of 0.8" in out
    assert "compared with those of its own class" in out
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    assert all(row["predicted"] in row["set"].split(" | ") for row in rows)


def test_review_and_suggest_write_tables(run: Path, tmp_path: Path, capsys: Any) -> None:
    code, out, _ = bvat(["review", str(run), "--out", str(tmp_path / "r.csv")], capsys)
    assert code == 0
    assert "labels of run are suspect" in out
    rows = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert [float(row["score"]) for row in rows] == sorted(float(row["score"]) for row in rows)
    code, out, _ = bvat(["review", str(run), "--json"], capsys)
    assert len(json.loads(out)["rows"]) == len(rows)


@pytest.mark.parametrize("coverage", ["0", "1", "1.2"])
def test_impossible_coverages(run: Path, tmp_path: Path, coverage: str, capsys: Any) -> None:
    code, _, err = bvat(
        ["predict", str(run), "--coverage", coverage, "--out", str(tmp_path / "p.csv")], capsys
    )
    assert code == 2
    assert "between 0 and 1" in err
    assert not (tmp_path / "p.csv").exists()


def test_without_calibration_auto_is_as_sure_as_its_members(run: Path, tmp_path: Path, capsys: Any) -> None:
    rows = []
    for extra in ([], ["--no-calibrate"]):
        out = tmp_path / "p.csv"
        assert bvat(["predict", str(run), "--coverage", "0.8", "--out", str(out), *extra], capsys)[0] == 0
        rows.append(list(csv.DictReader(out.read_text().splitlines())))
    for name, same in (("predicted", True), ("set", True), ("confidence", False)):
        assert ([row[name] for row in rows[0]] == [row[name] for row in rows[1]]) == same


@pytest.fixture(scope="module")
def one_label(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with ten labels of two classes and one of the third; other nodes have none."""
    whole = library.synthetic_graph(nodes=150, edges=400, features=30, classes=3, train_per_class=10)
    kept = torch.cat([whole.train[whole.labels[whole.train] == k][: 1 if k == 2 else 10] for k in range(3)])
    labels = torch.full_like(whole.labels, -1)
    labels[kept] = whole.labels[kept]
    none = kept[:0]
    graph = dataclasses.replace(whole, labels=labels, train=kept.sort().values, val=none, test=none)
    return library.run(graph, "auto", folder=tmp_path_factory.mktemp("one") / "run", effort=1).path


def test_a_class_with_one_label_is_told_what_is_missing(one_label: Path, tmp_path: Path, capsys: Any) -> None:
    code, out, _ = bvat(
        ["predict", str(one_label), "--coverage", "0.9", "--out", str(tmp_path / "p.csv")], capsys
    )
    assert code == 0
    assert "9 labels are missing to compare each with its own" in out
    code, out, _ = bvat(["review", str(one_label)], capsys)
    assert (code, "of 20 labels of run" in out) == (0, True)


def test_suggestions_come_with_reasons(one_label: Path, tmp_path: Path, capsys: Any) -> None:
    code, _, _ = bvat(["suggest", str(one_label), "--count", "12", "--out", str(tmp_path / "s.csv")], capsys)
    rows = list(csv.DictReader((tmp_path / "s.csv").read_text().splitlines()))
    assert (code, len(rows)) == (0, 12)
    words = ("far from labels", "undecided between", "stands for", "similar to undecided")
    assert all(any(word in row["why"] for word in words) for row in rows)


def test_no_labels_and_one_label_each(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "g").mkdir()
    edges = "source,target\n" + "".join(f"{k},{(k + 1) % 12}\n" for k in range(12))
    (tmp_path / "g" / "edges.csv").write_text(edges)
    for labels, command in (({}, "train"), ({0: "a", 6: "b"}, "predict")):
        rows = "".join(f"{k},{labels.get(k, '')},{k % 5},{k % 3}\n" for k in range(12))
        (tmp_path / "g" / "nodes.csv").write_text("id,label,x,y\n" + rows)
        folder = str(tmp_path / f"run-{command}")
        code, _, err = bvat(["train", str(tmp_path / "g"), "--out", folder, "--effort", "1"], capsys)
        if command == "train":
            assert (code, "no node has a label" in err) == (2, True)
            continue
        assert code == 0
        words = ["predict", folder, "--coverage", "0.9", "--out", str(tmp_path / "p.csv")]
        for asked in (words, ["review", folder]):
            code, _, err = bvat(asked, capsys)
            assert (code, "label at least two nodes of each class" in err) == (2, True)
