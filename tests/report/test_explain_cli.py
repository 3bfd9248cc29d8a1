"""``bvat explain`` as a user meets it."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from page_checks import EVIL, check_page

import bvat as library
from bvat.data import load_graph
from bvat.graph import Graph
from bvat.report.explain_page import _apart
from cli_helpers import bvat


@pytest.fixture(scope="module")
def runs(small_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``net``, two seeds on a graph with hostile names."""
    root = tmp_path_factory.mktemp("explained")
    graph: Graph = load_graph(small_file)
    names = (EVIL, *(f"n{k}" for k in range(1, graph.num_nodes)))
    named = replace(graph, node_names=names, class_names=(EVIL, "b", "c"))
    library.run(named, "none", seeds=2, epochs=5, folder=root / "net", options=library.RunOptions(page=False))
    return root


def test_text_json_table_and_page(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["explain", str(runs / "net"), "--node", EVIL, "--top", "3"]
    code, out, _ = bvat([*command, "--out", "why.html"], capsys)
    assert code == 0
    for words in (
        "probability 0.",
        "next class: ",
        "smallest change of class: ",
        "neighbours, 3 of",
        "why.html",
    ):
        assert words in out
    page = check_page(Path("why.html").read_text("utf-8"))
    assert "svg" in page.tags
    assert any("How this was measured" in words for words in page.words)
    code, out, _ = bvat([*command, "--out", "why.csv", "--json", "--seed", "1"], capsys)
    found = json.loads(out)
    assert (code, found["seed"], found["id"], len(found["features"])) == (0, 1, EVIL, 3)
    with Path("why.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    total = sum(float(row["contribution"]) for row in rows if row["kind"] == "node")
    assert total + found["constant"] == pytest.approx(found["margin"], rel=1e-3, abs=1e-5)


@pytest.mark.parametrize(
    ("run", "options", "sentence"),
    [
        ("net", ["--node", "n999"], "has no node n999"),
        ("net", ["--node", "n1", "--seed", "7"], "no finished seed 7"),
        ("net", ["--node", "n1", "--top", "0"], "whole number from 1"),
        ("net", ["--node", "n1", "--out", "why.txt"], "end its name in .html or .csv"),
        ("net", [], "Missing option '--node'"),
        ("none", ["--node", "n1"], "is not a run folder"),
    ],
)
def test_bad_input_gets_one_sentence(
    runs: Path, run: str, options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = bvat(["explain", str(runs / run), *options], capsys)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_names_in_the_picture_do_not_lie_on_each_other() -> None:
    place = np.array([[0.0, 0.0], [1.0, 0.0], [0.99, 0.01], [0.0, 1.0]])
    assert _apart(place, ["middle", "a long name", "another name", "above"]) == [0, 1, 3]
