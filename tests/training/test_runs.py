"""Run folders, and several seeds side by side."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bvat.data import synthetic_graph
from bvat.errors import SettingsError, TrainingError
from bvat.graph import Graph
from bvat.training.loop import METRICS, train
from bvat.training.run_folder import RunFolder, spread, summary_of
from bvat.training.seeds import Job, train_seeds
from bvat.training.settings import Settings, preset


@pytest.fixture(scope="module")
def graph() -> Graph:
    return synthetic_graph(nodes=120, edges=300, features=40, classes=3, train_per_class=5, seed=1)


SETTINGS = preset("none", "obvat", epochs=25, hidden=8)


def run(graph: Graph, path: Path, seeds: list[int], jobs: int, settings: Settings = SETTINGS) -> list[dict]:
    folder = RunFolder(path)
    folder.start(graph, settings, resume=path.exists())
    job = Job(graph, settings, folder, path.exists(), 1, "cpu")
    return train_seeds(job, seeds, jobs, lambda seed, epoch: None)


@pytest.mark.slow
def test_one_and_two_processes_give_the_same(graph: Graph, tmp_path: Path) -> None:
    one = run(graph, tmp_path / "one", [0, 1, 2], 1)
    two = run(graph, tmp_path / "two", [0, 1, 2], 2)
    for a, b in zip(one, two, strict=True):
        assert (a["seed"], a["last"], a["best"]) == (b["seed"], b["last"], b["best"])
        weights = [
            load_file(tmp_path / n / f"seed-{a['seed']}" / "weights.safetensors") for n in ("one", "two")
        ]
        assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_the_folder_holds_everything(graph: Graph, tmp_path: Path) -> None:
    results = run(graph, tmp_path / "run", [4, 5], 1)
    folder = RunFolder(tmp_path / "run")
    summary = summary_of(graph, SETTINGS, results)
    folder.summarise([4, 5], summary)
    assert json.loads((folder.path / "result.json").read_text())["seeds"] == 2
    assert folder.read("settings.json")["settings"] == SETTINGS.as_dict()
    with np.load(folder.path / "split.npz", allow_pickle=False) as split:
        assert split["train"].tolist() == graph.train.tolist()
    with (folder.path / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["seed", *METRICS]
    assert len(rows) == 2 * SETTINGS.epochs
    trained = train(graph, SETTINGS, 5)
    assert float(rows[-1]["loss"]) == trained.metrics[-1]["loss"]
    weights = load_file(folder.path / "seed-5" / "weights.safetensors")
    assert all(torch.equal(weights[name], trained.weights[name]) for name in weights)
    assert not folder.checkpoint(5).exists()


def test_finished_seeds_are_not_trained_again(graph: Graph, tmp_path: Path) -> None:
    run(graph, tmp_path / "run", [0], 1)
    written = (tmp_path / "run" / "seed-0" / "weights.safetensors").stat().st_mtime_ns
    assert len(run(graph, tmp_path / "run", [0, 1], 2)) == 2
    assert (tmp_path / "run" / "seed-0" / "weights.safetensors").stat().st_mtime_ns == written


def test_runs_are_not_mixed(graph: Graph, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.start(graph, SETTINGS, resume=False)
    with pytest.raises(SettingsError, match="holds a run already: use --resume"):
        folder.start(graph, SETTINGS, resume=False)
    with pytest.raises(SettingsError, match=r"another setting: alpha was 0\.7, now 0\.1"):
        folder.start(graph, preset("none", "obvat", epochs=25, hidden=8, alpha=0.1), resume=True)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("keep me")
    with pytest.raises(SettingsError, match="is not a run folder"):
        RunFolder(tmp_path / "letters").start(graph, SETTINGS, resume=False)
    assert (tmp_path / "letters" / "dear.txt").read_text() == "keep me"


@pytest.mark.slow
def test_errors_of_a_process_reach_the_user(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="not a finite number"):
        run(graph, tmp_path / "run", [0, 1], 2, preset("none", "gcn", epochs=40, lr=1e38))


def test_spread() -> None:
    assert spread([1.0, 2.0, 3.0]) == {"mean": 2.0, "std": 1.0, "values": [1.0, 2.0, 3.0]}
    assert spread([5.0])["std"] == 0.0
    assert spread([None, None])["mean"] is None
