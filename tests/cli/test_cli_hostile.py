"""Numbers, names and graphs that are not what a command expects."""

from __future__ import annotations

import csv
import os
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from bvat import NodeClassifier
from bvat.data import load_graph, save_graph, synthetic_graph
from bvat.errors import GraphError, SettingsError
from bvat.graph import Graph
from bvat.report.charts import Line, line_chart, standalone
from bvat.training.loop import train
from bvat.training.settings import Settings
from cli_helpers import bvat

SMALL = synthetic_graph(nodes=60, edges=120, features=20, classes=2, train_per_class=5, val=10, test=20)
QUICK = ["--method", "none", "--epochs", "4", "--hidden", "8", "--device", "cpu", "--jobs", "1"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_graph(SMALL, tmp_path / "g.npz")


@pytest.mark.parametrize(
    ("option", "value"),
    [("--threads", "100000"), ("--threads", "0"), ("--seed", str(2**70)), ("--seeds", "1000000000"),
     ("--hidden", "1000000000"), ("--hidden", "9" * 400), ("--jobs", "100000"), ("--lr", "1e39"),
     ("--split-seed", str(2**70)), ("--epsilon", "1e308"), ("--ramp", "9" * 400)],
)  # fmt: skip
def test_huge_numbers_are_one_sentence(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    method = ["--method", "vat"] if option == "--epsilon" else []  # the plain method has none
    code, _, err = bvat(["train", "g.npz", *QUICK, *method, option, value], capsys)
    assert (code, err.count("\n")) == (2, 1)
    assert re.search(f"{option[2:].replace('-', '.')}.*(from [01] to|at most)", err)


def test_settings_say_their_limits() -> None:
    with pytest.raises(SettingsError, match="hidden must be at most 65536, not 65537"):
        Settings(hidden=65537)
    with pytest.raises(SettingsError, match=r"beta must be at most 3e\+38"):
        Settings(beta=1e39)
    with pytest.raises(SettingsError, match="beta must be of type float"):
        Settings(beta=10**400)
    assert Settings(hidden=np.int64(8), beta=np.float32(1)).hidden == 8


def test_a_model_larger_than_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sysconf", lambda name: 1000)
    with pytest.raises(SettingsError, match="hidden 65536 with 20 features needs"):
        train(SMALL, Settings(method="none", hidden=2**16))


def test_names_do_not_break_terminal_pages_and_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("[/b]\x1b[31m", "=<script>&$\\frac$")
    evil = replace(
        SMALL, class_names=names, name="[/b]\x1b[2J<i>", notes=("\x1b[31m[/red]",), validation="[/x]\x1b[0m",
        node_names=("=1+1", "+x", "-x", "@x", *(f"n{k}" for k in range(56)))
    )  # fmt: skip
    save_graph(evil, tmp_path / "evil.npz")
    code, out, err = bvat(["train", "evil.npz", *QUICK, "--out", "run"], capsys)
    assert (code, "note: the page" in err) == (0, False)
    assert "[/b]\\x1b[2J<i>" in out
    code, said, _ = bvat(["audit", "run", "--out", "a.csv", "--page", "a.html", "--nodes", "6"], capsys)
    assert code == 0
    code, more, _ = bvat(["predict", "run", "--out", "p.csv"], capsys)
    assert code == 0
    assert "\x1b" not in out + err + said + more
    for page in ("run/report.html", "a.html"):
        text = Path(page).read_text("utf-8")
        assert "\x1b" not in text
        assert "<script" not in text
        assert "<i>" not in text
    with Path("p.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows[:5]] == ["=1+1", "+x", "-x", "@x", "n0"]
    assert {row["predicted"] for row in rows} <= set(names)
    assert all(row["confidence"][0] in "01" for row in rows)


def test_forbidden_characters() -> None:
    evil = "a\x00\x1b\ud800\uffff<&\x0b\"'"
    ElementTree.fromstring(
        standalone(evil, [line_chart([Line(evil, [0, 1], [0, 1])], evil, evil, title=evil)])
    )


@pytest.mark.parametrize(
    "command", ["train", "predict", "audit", "explain", "tune", "compare", "reproduce", "bench", "data"]
)
def test_help_fits_into_80_columns(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    code, out, _ = bvat([command, "--help"], capsys)
    lines = out.splitlines()
    assert code == 0
    assert max(map(len, lines)) <= 80
    assert "…" not in out  # nothing is cut off
    prose = [line.strip() for line in "\n".join(lines).split("╭")[0].splitlines()]
    assert [a for a, b in pairwise(prose) if 0 < len(a) < 45 and b] == []  # no line ends in the middle
    helps = [len(line.rstrip(" │").rsplit("  ", 1)[-1]) for line in lines if line.startswith("│ ")]
    assert max(helps, default=30) >= 30  # the column of the help is not squeezed


def test_graphs_in_double_precision_are_trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    double = SMALL.to(dtype=torch.float64)
    save_graph(double, tmp_path / "double.npz")
    assert load_graph(tmp_path / "double.npz").features.dtype == torch.float64
    for method in ("none", "sbvat", "obvat"):
        fitted = NodeClassifier(method, epochs=4, hidden=8).fit(double)
        assert all(weight.dtype == torch.float64 for weight in fitted.training_.weights.values())
        fitted.save(tmp_path / "c.safetensors")
        again = NodeClassifier.load(tmp_path / "c.safetensors")
        assert np.array_equal(again.predict_proba(double), fitted.predict_proba(double))
        assert np.allclose(again.predict_proba(SMALL), fitted.predict_proba(double), atol=1e-4)
    code, _, err = bvat(["train", "double.npz", *QUICK, "--no-report", "--out", "run"], capsys)
    assert code == 0, err
    code, _, err = bvat(["predict", "run", "--out", "p.csv"], capsys)
    assert code == 0, err


def test_predict_a_graph_without_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = replace(
        SMALL, labels=torch.full_like(SMALL.labels, -1), **dict.fromkeys(("train", "val", "test"), _none())
    )
    save_graph(bare, tmp_path / "bare.npz")
    assert bvat(["train", "g.npz", *QUICK, "--no-report", "--out", "run"], capsys)[0] == 0
    code, _, err = bvat(["predict", "run", "--graph", "bare.npz", "--out", "p.csv"], capsys)
    assert code == 0, err
    assert len(Path("p.csv").read_text().splitlines()) == 61
    for quick in (["--method", "none", "--epochs", "4"], ["--method", "auto", "--effort", "1"]):
        code, _, err = bvat(["train", "bare.npz", *quick, "--jobs", "1"], capsys)
        assert code == 2
        assert "labels" in err
        assert err.count("bvat: ") == 1
    with pytest.raises(GraphError, match="no labels to train on"):
        NodeClassifier("none").fit(bare)


def _none() -> torch.Tensor:
    return torch.zeros(0, dtype=torch.int64)


def test_tiny_features_are_scaled() -> None:
    tiny = Graph.build(
        np.random.default_rng(0).random((60, 20)) * 1e-30, SMALL.adjacency.to_scipy(), SMALL.labels,
        train=SMALL.train, val=SMALL.val, normalize=False,
    )  # fmt: skip
    from bvat.training.state import start_training

    lengths = start_training(tiny, Settings(scale="unit")).graph.features.row_squares()
    assert float(lengths.mean()) == pytest.approx(1, rel=1e-4)
