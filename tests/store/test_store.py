"""Run folders, the store of runs, and seeds in parallel: nothing is computed twice."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bvat.baselines import planetoid
from bvat.data import synthetic_graph
from bvat.data.checksums import read_sealed_json, sha256, write_sealed_json
from bvat.errors import DataError, SettingsError, TrainingError
from bvat.graph import Graph
from bvat.store.folder import RunFolder
from bvat.store.results import summary_of
from bvat.store.store import Measurement, RunSpec, RunStore, SeedTrainer, train_seeds
from bvat.training.loop import METRICS, train
from bvat.training.settings import Settings, preset, preset_among
from bvat.training.statistics import summarize


@pytest.fixture(scope="module")
def graph() -> Graph:
    return synthetic_graph(nodes=120, edges=300, features=40, classes=3, train_per_class=5, seed=1)


SETTINGS = preset("none", "obvat", epochs=25, hidden=8)


def run(graph: Graph, path: Path, seeds: list[int], jobs: int, settings: Settings = SETTINGS) -> list[dict]:
    folder = RunFolder(path)
    folder.start(graph, settings, resume=path.exists())
    return train_seeds(SeedTrainer(folder, graph, settings, resume=path.exists()), seeds, jobs)


def test_the_folder_holds_everything(graph: Graph, tmp_path: Path) -> None:
    results = run(graph, tmp_path / "run", [4, 5], 1)
    folder = RunFolder(tmp_path / "run")
    summary = summary_of(graph, SETTINGS, results)
    folder.summarize([4, 5], summary)
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


def test_runs_are_not_mixed(graph: Graph, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.start(graph, SETTINGS, resume=False)
    with pytest.raises(SettingsError, match="already holds a run: use --resume"):
        folder.start(graph, SETTINGS, resume=False)
    with pytest.raises(SettingsError, match=r"a different setting: alpha was 0\.3, now 0\.1"):
        folder.start(graph, preset("none", "obvat", epochs=25, hidden=8, alpha=0.1), resume=True)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("keep me")
    with pytest.raises(SettingsError, match="exists but is not a run folder"):
        RunFolder(tmp_path / "letters").start(graph, SETTINGS, resume=False)
    assert (tmp_path / "letters" / "dear.txt").read_text() == "keep me"


@pytest.mark.slow
def test_errors_of_a_process_reach_the_user(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="not a finite number"):
        run(graph, tmp_path / "run", [0, 1], 2, preset("none", "none", epochs=40, lr=1e30))


def test_summarize() -> None:
    assert summarize([1.0, 2.0, 3.0]) == {"mean": 2.0, "std": 1.0, "values": [1.0, 2.0, 3.0]}
    assert summarize([5.0])["std"] is None
    assert summarize([None, None])["mean"] is None


def _count_weights(graph: Graph, settings: Settings, trained: Any) -> dict[str, Any]:
    return {"weights": sum(tensor.numel() for tensor in trained.weights.values())}


COUNT = Measurement("count", _count_weights, dict)


def spec(
    seed: int = 0, measurement: Measurement | None = None, method: str = "none", **settings: Any
) -> RunSpec:
    return RunSpec("small", preset_among("small", method, **{"epochs": 3, **settings}), seed, measurement)


def store_of(path: Path, graph: Graph) -> RunStore:
    return RunStore.open(path, {"small": graph})


def test_a_key_changes_with_all_that_matters(small: Graph, tmp_path: Path) -> None:
    store = store_of(tmp_path, small)
    other = replace(small, labels=(small.labels + 1) % 3)
    keys = {
        store.key(spec()),
        store.key(spec(measurement=COUNT)),
        store.key(spec(measurement=replace(COUNT, parameters=lambda: {"repeats": 2}))),
        store.key(spec(lr=0.02)),
        store.key(spec(method="vat")),
        store_of(tmp_path, other).key(spec()),
    }
    assert len(keys) == 6
    assert store_of(tmp_path / "elsewhere", small).key(spec()) == store.key(spec())
    assert store.key(spec(seed=1)) == store.key(spec())  # seeds share a run folder


def test_a_stored_run_is_a_run_folder_without_weights(small: Graph, tmp_path: Path) -> None:
    store = store_of(tmp_path, small)
    assert store.run_all([spec(seed=k, measurement=COUNT) for k in (3, 1)], jobs=1) == 2
    folder = store.folder(spec(measurement=COUNT))
    assert folder.seeds() == (1, 3)
    assert {path.name for path in folder.path.rglob("*") if path.is_file()} == {
        "settings.json",
        "result.json",
    }
    assert folder.read("settings.json")["settings"] == spec().settings.as_dict()
    result = store.result(spec(seed=3, measurement=COUNT))
    trained = train(small, spec().settings, 3)
    assert result is not None
    assert result["last"] == trained.last
    assert result["weights"] == _count_weights(small, spec().settings, trained)["weights"]
    assert store.result(spec(seed=3)) is None


def test_metrics_that_are_no_table_are_refused(small: Graph, tmp_path: Path) -> None:
    """Their checksum is right: somebody else wrote them."""
    run(small, tmp_path / "run", [0], 1)
    folder, content = RunFolder(tmp_path / "run"), b"epoch\n" + b"1" * 200_000
    (folder.seed_path(0) / "metrics.csv").write_bytes(content)
    path = folder.seed_path(0) / "result.json"
    stored = read_sealed_json(path)
    stored["files"]["metrics.csv"] = sha256(content)
    write_sealed_json(path, stored)
    with pytest.raises(DataError, match=r"metrics\.csv cannot be read \(field larger"):
        folder.curves(0)


def test_a_damaged_result_is_done_again_and_others_are_not(small: Graph, tmp_path: Path) -> None:
    store = store_of(tmp_path, small)
    specs = [spec(seed=k) for k in range(3)]
    assert store.run_all([*specs, *specs], jobs=1) == 3
    before = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("seed-*/result.json")}
    assert len(before) == 3
    damaged = store.folder(specs[1]).seed_path(1) / "result.json"
    damaged.write_text(damaged.read_text()[:-20])
    assert store.result(specs[1]) is None
    assert store.run_all(specs, jobs=1) == 1
    for path, content in before.items():
        if path == damaged:
            assert json.loads(path.read_bytes())["last"] == json.loads(content)["last"]
        else:
            assert path.read_bytes() == content


def test_a_result_of_another_seed_or_key_is_not_taken(small: Graph, tmp_path: Path) -> None:
    store = store_of(tmp_path, small)
    store.run_all([spec(), spec(lr=0.02)], jobs=1)
    content = (store.folder(spec()).seed_path(0) / "result.json").read_text()
    for other, seed in ((spec(), 1), (spec(lr=0.02), 0)):
        path = store.folder(other).seed_path(seed) / "result.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        assert store.result(replace(other, seed=seed)) is None


def test_long_runs_are_started_first(small: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(RunStore, "run", lambda self, spec, report: started.append(spec.settings.method))
    specs = [spec(method=method, seed=k) for method in ("none", "obvat", "vat") for k in range(2)]
    assert store_of(tmp_path, small).run_all(specs, jobs=1) == 6
    assert started == ["obvat", "obvat", "vat", "vat", "none", "none"]


@pytest.mark.slow
def test_what_two_baselines_need_is_computed_once(
    small: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planetoid-T and -G have one embedding; a damaged file is not used, and none is left at the end."""
    learn, learned = planetoid.context_embedding, []

    def counted(graph: Graph, seed: int, *, label_walks: int) -> Any:
        learned.append((seed, label_walks))
        return learn(graph, seed, label_walks=label_walks)

    monkeypatch.setattr(planetoid, "context_embedding", counted)
    monkeypatch.setattr(planetoid, "STEPS", 20)
    both = [spec(method=method, seed=k) for method in ("planetoid-t", "planetoid-g") for k in range(2)]
    alone = {each: train(small, each.settings, each.seed).selected for each in both}
    assert len(learned) == 8
    learned.clear()
    store = store_of(tmp_path, small)
    for each in both[:2]:
        store.run(each)
    files = sorted((tmp_path / "pretrained").iterdir())
    assert len(files) == len(learned) == 4
    content = bytearray(files[0].read_bytes())
    content[-1] ^= 1
    files[0].write_bytes(content)
    store.run_all(both, jobs=1)
    assert len(learned) == 5
    assert list((tmp_path / "pretrained").iterdir()) == []
    for each, expected in alone.items():
        result = store.result(each)
        assert result is not None
        assert result["best"] == expected


@pytest.mark.slow
def test_several_processes_give_the_same_numbers(small: Graph, tmp_path: Path) -> None:
    one, two = store_of(tmp_path / "one", small), store_of(tmp_path / "two", small)
    specs = [spec(seed=k, method="obvat") for k in range(2)]
    one.run_all(specs, jobs=1)
    two.run_all(specs, jobs=2)
    for each in specs:
        first, second = one.result(each), two.result(each)
        assert first is not None
        assert second is not None
        assert first["last"] == second["last"]
        assert first["best"] == second["best"]


@pytest.mark.parametrize(
    "change",
    [{"selected": 3}, {"last": {"epoch": 1}}, {"epochs": "many"}, {"events": "none"}, {"space": None}],
    ids=str,
)
def test_a_result_with_other_types_inside_counts_as_missing(
    change: dict[str, Any], small: Graph, tmp_path: Path
) -> None:
    store = store_of(tmp_path, small)
    store.run_all([spec()], jobs=1)
    path = store.folder(spec()).seed_path(0) / "result.json"
    write_sealed_json(path, {**read_sealed_json(path), **change})
    assert store.result(spec()) is None
    for text in ("[]", "3", "null", '"text"'):
        path.write_text(text)
        assert store.result(spec()) is None
