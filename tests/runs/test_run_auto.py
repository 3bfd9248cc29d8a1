"""Runs of ``auto``: folders, predictions on other graphs, resumption, processes, too few labels."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import bvat
from bvat.data import save_graph
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.models.ensemble import LINEAR
from bvat.tuning import networks
from cli_helpers import bvat as command

QUIET = bvat.RunOptions(page=False)
CLASSES = ("cat", "dog", "owl")


def write_folder(
    folder: Path, rows: np.ndarray, labels: list[str], edges: list[tuple[int, int]], prefix: str = "n"
) -> None:
    """Write nodes.csv, and edges.csv if there are edges."""
    folder.mkdir()
    with (folder / "nodes.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "label", *(f"x{k}" for k in range(rows.shape[1]))])
        table.writerows([f"{prefix}{k}", labels[k], *row] for k, row in enumerate(rows.tolist()))
    if edges:
        with (folder / "edges.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["source", "target"])
            table.writerows((f"{prefix}{a}", f"{prefix}{b}") for a, b in edges)


def drawn(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return classes in turn, and quantities that lie around the mean of the class."""
    rng = np.random.default_rng(seed)
    kind = np.arange(count) % 3
    return kind, np.round(rng.normal(size=(count, 6)) + 4 * np.eye(3)[kind].repeat(2, axis=1), 3)


@pytest.fixture
def animals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """90 nodes, 8 labels per class, edges within the classes."""
    monkeypatch.chdir(tmp_path)
    kind, rows = drawn(90)
    labels = [CLASSES[k] if n < 24 else "" for n, k in enumerate(kind)]
    write_folder(tmp_path / "animals", rows, labels, [(k, (k + 3) % 90) for k in range(90)])
    return tmp_path / "animals"


def probabilities(path: Path) -> dict[str, list[float]]:
    with path.open() as file:
        return {row["id"]: [float(row[f"p_{name}"]) for name in CLASSES] for row in csv.DictReader(file)}


def weights(run: Path, seed: int = 0) -> bytes:
    return (run / f"seed-{seed}" / "weights.safetensors").read_bytes()


def test_a_folder_of_tables_is_trained_predicted_and_explained(
    animals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = command(["train", "animals", "--effort", "1", "--out", "run", "--jobs", "1"], capsys)
    assert code == 0, err
    assert "cross-validat" in out
    summary = json.loads(Path("run/result.json").read_text())
    assert summary["cross_validation"]["nodes"] == 24  # every label is held out once, and none is set aside
    result = json.loads(Path("run/seed-0/result.json").read_text())
    assert {row["name"] for row in result["fit"]["members"]} == set(LINEAR)
    page = Path("run/report.html").read_text()
    assert all(row["title"] in page for row in result["fit"]["members"])
    code, _, err = command(["predict", "run", "--out", "p.csv"], capsys)
    assert code == 0, err
    found = probabilities(Path("p.csv"))
    right = [int(np.argmax(found[f"n{n}"])) == n % 3 for n in range(24, 90)]
    assert len(found) == 90
    assert np.mean(right) > 0.9
    assert np.allclose([sum(row) for row in found.values()], 1, atol=1e-4)


def test_new_nodes_get_neighbours_from_their_features(
    animals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without any edge, what is predicted for a node depends on the nodes that are similar to it."""
    assert command(["train", "animals", "--effort", "1", "--out", "run", "--no-report"], capsys)[0] == 0
    kind, rows = drawn(30, seed=5)
    rows[0] = (rows[0] + rows[1]) / 2  # between two classes
    none = [""] * 30
    write_folder(Path("crowd"), rows, none, [], "m")
    near = rows.copy()
    near[3:15] = rows[0] + 0.01 * np.arange(12)[:, None]  # others move next to it
    write_folder(Path("moved"), near, none, [], "m")
    for name in ("crowd", "moved"):
        code, _, err = command(["predict", "run", "--graph", name, "--out", f"{name}.csv"], capsys)
        assert code == 0, err
    crowd, moved = probabilities(Path("crowd.csv")), probabilities(Path("moved.csv"))
    assert np.mean([int(np.argmax(crowd[f"m{n}"])) == kind[n] for n in range(1, 30)]) > 0.9
    assert max(np.abs(np.subtract(crowd["m0"], moved["m0"]))) > 1e-3
    code, _, err = command(["predict", "run", "--graph", "crowd", "--out", "again.csv"], capsys)
    assert code == 0, err
    assert Path("again.csv").read_bytes() == Path("crowd.csv").read_bytes()


def test_an_interrupted_run_continues_with_the_same_bits(
    small: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Networks that were trained before the end came are not trained again, and nothing is left of them."""
    monkeypatch.setattr(networks, "EPOCHS", 30)
    whole = bvat.run(small, "auto", folder=tmp_path / "whole", options=QUIET)
    real, calls = networks.train, []

    def training(*arguments: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments, **more)

    monkeypatch.setattr(networks, "train", training)
    with pytest.raises(KeyboardInterrupt):
        bvat.run(small, "auto", folder=tmp_path / "run", options=QUIET)
    kept = sorted((tmp_path / "run" / "seed-0").glob("shared-*.safetensors"))
    assert len(kept) == 2
    kept[0].write_bytes(kept[0].read_bytes()[:-1])  # damaged: counts as missing
    calls[:] = [1] * 3
    again = bvat.run(small, "auto", folder=tmp_path / "run", options=QUIET, resume=True)
    assert len(calls) - 3 == 2
    assert weights(again.path) == weights(whole.path)
    assert again.summary["cross_validation"] == whole.summary["cross_validation"]
    assert sorted(path.name for path in (tmp_path / "run" / "seed-0").iterdir()) == [
        "metrics.csv", "result.json", "weights.safetensors"]  # fmt: skip
    with pytest.raises(SettingsError, match="effort was 2, now 3"):
        bvat.run(small, "auto", folder=tmp_path / "run", options=QUIET, resume=True, effort=3)


@pytest.mark.slow
def test_two_processes_find_the_bits_of_one(
    small: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for jobs in (1, 2):
        bvat.run(small, "auto", folder=tmp_path / f"{jobs}", seeds=2, jobs=jobs, options=QUIET)
        assert command(["predict", f"{tmp_path}/{jobs}", "--out", f"{tmp_path}/{jobs}.csv"], capsys)[0] == 0
    for seed in (0, 1):
        assert weights(tmp_path / "1", seed) == weights(tmp_path / "2", seed)
    assert weights(tmp_path / "1", 0) != weights(tmp_path / "1", 1)
    assert (tmp_path / "1.csv").read_bytes() == (tmp_path / "2.csv").read_bytes()


@pytest.mark.slow
def test_a_killed_run_continues_with_the_same_bits(
    small_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed as soon as the first network is stored."""
    monkeypatch.chdir(tmp_path)
    train = ["train", str(small_file), "--method", "auto", "--jobs", "1", "--no-report", "--out"]
    with subprocess.Popen(
        [sys.executable, "-m", "bvat", *train, "run"], stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None and not list(Path("run").glob("seed-0/shared-*.safetensors")):
            time.sleep(0.01)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    for more in (["run", "--resume"], ["whole"]):
        code, _, err = command([*train, *more], capsys)
        assert code == 0, err
    for name in ("run", "whole"):
        assert command(["predict", name, "--out", f"{name}.csv"], capsys)[0] == 0
    assert weights(Path("run")) == weights(Path("whole"))
    assert Path("run.csv").read_bytes() == Path("whole.csv").read_bytes()


def hostile(case: str) -> tuple[np.ndarray, list[str], list[tuple[int, int]]]:
    kind, rows = drawn(30)
    labels, edges = [CLASSES[k] for k in kind], [(k, (k + 3) % 30) for k in range(30)]
    if case == "one class":
        labels = ["cat" if n < 10 else "" for n in range(30)]
    elif case == "one label":
        labels = ["cat" if n == 4 else "" for n in range(30)]
    elif case == "no label":
        labels = [""] * 30
    elif case == "no edges and no features":
        rows, edges = rows[:, :0], []
    elif case == "not a number":
        rows[7, 2] = np.nan
    elif case.startswith("constant features"):
        rows, edges = np.ones_like(rows), edges if case.endswith("and edges") else []
    return rows, labels, edges


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("one class", "all labels are 'cat', so there is nothing to learn: also label nodes of another"),
        ("one label", "all labels are 'cat', so there is nothing to learn: also label nodes of another"),
        ("no label", "no node has a label: label a few nodes of each class"),
        ("no edges and no features", "folder has neither edges nor features: add edges, numeric columns, or"),
        (
            "constant features",
            "folder has no edges, and all nodes have the same features: add others, or edges",
        ),
        ("not a number", "nodes.csv, line 9, column 'x2': 'nan' is not a number"),
        ("constant features and edges", "all nodes of folder have the same features: add others, or leave"),
    ],
)
def test_what_nothing_can_be_learned_from_is_refused_in_a_sentence(
    case: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "folder", *hostile(case))
    code, _, err = command(["train", "folder", "--effort", "1", "--jobs", "1", "--out", "run"], capsys)
    said = [line for line in err.splitlines() if line.startswith("bvat: ")]
    assert (code, len(said)) == (2, 1), err
    assert sentence in said[0]
    assert "Traceback" not in err


def test_one_label_per_class_gives_a_model_and_no_claim(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kind, rows = drawn(60)
    labels = [CLASSES[k] if n < 3 else "" for n, k in enumerate(kind)]
    write_folder(tmp_path / "folder", rows, labels, [])
    code, out, err = command(["train", "folder", "--jobs", "1", "--out", "run"], capsys)
    assert code == 0, err
    assert "no class has two labelled nodes" in out + err
    summary = json.loads(Path("run/result.json").read_text())
    assert summary.get("cross_validation") is None
    assert command(["predict", "run", "--out", "p.csv"], capsys)[0] == 0
    found = probabilities(Path("p.csv"))
    assert np.mean([int(np.argmax(found[f"n{n}"])) == n % 3 for n in range(3, 60)]) > 0.8


def test_classes_with_one_label_are_predicted_but_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kind, rows = drawn(60)
    labels = [CLASSES[k] if n < 3 or (n < 24 and not k) else "" for n, k in enumerate(kind)]
    write_folder(tmp_path / "folder", rows, labels, [])
    code, out, err = command(["train", "folder", "--effort", "1", "--jobs", "1", "--out", "run"], capsys)
    assert code == 0, err
    assert "says nothing of dog, owl: too few labels" in " ".join((out + err).split())
    assert command(["predict", "run", "--out", "p.csv"], capsys)[0] == 0
    found = probabilities(Path("p.csv"))
    assert np.mean([int(np.argmax(found[f"n{n}"])) == n % 3 for n in range(60)]) > 0.8


def test_without_features_edges_are_enough(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kind, rows = drawn(60)
    labels = [CLASSES[k] if n < 24 else "" for n, k in enumerate(kind)]
    write_folder(tmp_path / "folder", rows[:, :0], labels, [(k, (k + 3) % 60) for k in range(60)])
    code, _, err = command(["train", "folder", "--effort", "1", "--jobs", "1", "--out", "run"], capsys)
    assert code == 0, err
    assert "no features, so each of the 60 nodes gets its own" in err
    assert json.loads(Path("run/result.json").read_text())["cross_validation"]["accuracy"] > 80


def test_a_hundred_thousand_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind = np.arange(60) % 3
    words = np.random.default_rng(0).integers(0, 1000, (60, 30)) + 1000 * kind[:, None]
    rows = sp.csr_array((np.ones(1800), (np.repeat(np.arange(60), 30), words.ravel())), (60, 100_000))
    graph = bvat.Graph.build(rows, sp.csr_array((60, 60)), kind, train=range(24), test=range(24, 60))
    save_graph(graph, tmp_path / "wide.npz")
    train = ["train", f"{tmp_path}/wide.npz", "--effort", "1", "--jobs", "1", "--no-report"]
    code, _, err = command([*train, "--out", f"{tmp_path}/run"], capsys)
    assert code == 0, err
    assert json.loads((tmp_path / "run/result.json").read_text())["test_accuracy"]["mean"] > 80
