"""What ``bvat bench`` measures, on a graph and with a budget so small that it takes seconds."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from bvat.bench import measure
from bvat.bench.measure import ROWS, Budget, Times, interleave, run_bench, settings_of
from bvat.data import load, save_graph, synthetic_graph
from bvat.perturb.methods import ON_GCN
from bvat.training.loop import run_epoch
from bvat.training.settings import preset
from bvat.training.state import start_training
from cli_helpers import bvat

FEW = Budget(warmup=1, rounds=2, seconds=0.0, min_rounds=2)


@pytest.fixture(scope="module")
def graph_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graphs") / "tiny.npz"
    save_graph(synthetic_graph(nodes=120, edges=300, features=40, classes=3, train_per_class=5), path)
    return path


@pytest.fixture
def _tiny_plan(graph_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure a small graph, whatever the command asks for."""
    tiny = partial(measure.run_bench, [str(graph_file)], FEW)
    monkeypatch.setattr(
        measure, "run_bench", lambda datasets, budget, log, device: tiny(log, ("gcn", "vat"), device)
    )


@pytest.mark.slow
@pytest.mark.usefixtures("_tiny_plan")
def test_json_on_stdout_and_progress_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = bvat(["bench", "--quick", "--json", "--out", str(tmp_path)], capsys)
    assert code == 0
    result = json.loads(out)
    assert result == json.loads((tmp_path / "bench.json").read_text())
    assert list(result["epoch_ms"]["tiny"]) == ["gcn", "vat"]
    assert "tiny: gcn, vat" in err
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]


@pytest.mark.slow
@pytest.mark.usefixtures("_tiny_plan")
def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = bvat(["bench"], capsys)
    assert code == 0
    assert "epoch / GCN" in out
    assert "VAT" in out


@pytest.mark.parametrize("arguments", [["--fast"], ["cora"], ["--out"]])
def test_bad_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = bvat(["bench", *arguments], capsys)
    assert (code, out) == (2, "")
    assert err.startswith("bvat: ")


def test_a_file_cannot_be_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for name in ("file", "file/below"):
        code, out, err = bvat(["bench", "--quick", "--out", str(tmp_path / name)], capsys)
        assert (code, out) == (2, "")
        assert "cannot be a folder" in err
        assert len(err.splitlines()) == 1


def test_everything_is_there_and_agrees(graph_file: Path) -> None:
    results = run_bench([str(graph_file)], FEW, lambda _: None)
    assert set(results) == {"epoch_ms", "step_ms", "over_gcn", "settings", "versions", "machine"}
    assert json.loads(json.dumps(results, allow_nan=False))["epoch_ms"]
    epoch = results["epoch_ms"]["tiny"]
    assert tuple(epoch) == tuple(ROWS)
    for method in ROWS:
        assert 0 < results["step_ms"]["tiny"][method] <= epoch[method]
        assert results["over_gcn"]["tiny"][method] == pytest.approx(epoch[method] / epoch["gcn"])
        assert results["settings"]["tiny"][method]["hidden"] == settings_of("tiny", method).hidden


def test_rows_are_the_methods_and_two_variants() -> None:
    methods = [name for name in ON_GCN if name != "grand"]
    assert [*ROWS] == [*methods, "obvat-fast", "random-propagation"]
    assert settings_of("cora", "vat") == preset("cora", "vat")
    assert (settings_of("cora", "obvat").search, settings_of("cora", "obvat").steps) == ("adam", 10)


def test_the_regulariser_acts_from_the_first_epoch_on_any_graph(graph_file: Path) -> None:
    state = start_training(load(str(graph_file)), settings_of("tiny", "vat"))
    assert run_epoch(state)["r_vadv"] > 0


def test_the_fast_entry_is_obvat_with_the_fast_search() -> None:
    settings = settings_of("cora", "obvat-fast")
    assert (settings.method, settings.search) == ("obvat", "fast")
    assert settings.steps < preset("cora", "obvat").steps


def test_actions_run_in_turn() -> None:
    calls: list[str] = []

    def action(name: str) -> float:
        calls.append(name)
        return 1.0

    budget = Budget(warmup=2, rounds=3, seconds=60.0, min_rounds=1)
    times = interleave({"a": lambda: action("a"), "b": lambda: action("b")}, budget)
    assert calls == ["a", "b"] * 5
    assert {name: len(each.epoch) for name, each in times.items()} == {"a": 3, "b": 3}
    assert times["a"].step == [1.0] * 3
    assert len(times["a"].cpu) == 3


def test_rounds_end_with_the_time_but_not_before_the_least() -> None:
    times = interleave({"a": lambda: 0.0}, Budget(warmup=1, rounds=1000, seconds=0.0, min_rounds=4))
    assert len(times["a"].epoch) == 4


def test_settling_runs_a_fast_action_once_more_and_does_not_time_it() -> None:
    calls: list[int] = []

    def action() -> float:
        calls.append(1)
        return float(len(calls))

    budget = Budget(warmup=1, rounds=3, seconds=60.0, min_rounds=1)
    times = interleave({"a": action}, budget, settle_below_ms=1e9)
    assert times["a"].step == [3.0, 5.0, 7.0]


def test_summary_is_robust_to_one_slow_epoch() -> None:
    summary = Times([1.0, 1.0, 1000.0], [0.9, 0.9, 900.0], [0.5, 0.5, 999.0]).summary()
    assert summary == {
        "epoch_ms": 1.0,
        "epoch_ms_p10": 1.0,
        "epoch_cpu_ms": 0.9,
        "epoch_cpu_ms_p10": 0.9,
        "step_ms": 0.5,
        "step_ms_p10": 0.5,
        "epochs": 3,
    }
