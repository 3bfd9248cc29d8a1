"""``bvat review``, ``bvat suggest`` and ``bvat predict --coverage``."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

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


def test_nothing_to_suggest_where_all_nodes_have_a_label(run: Path, capsys: Any) -> None:
    code, _, err = bvat(["suggest", str(run), "--count", "5"], capsys)
    assert code == 2
    assert "all nodes of" in err
