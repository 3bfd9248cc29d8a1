"""``bvat runs`` on folders that were trained, are unfinished, or are damaged; and shell completion."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bvat.cli.runs import _accuracy
from bvat.data import synthetic_graph
from bvat.data.checksums import write_sealed_json
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.inference.records import compare_runs, read_run
from bvat.store.folder import RunFolder
from bvat.store.results import summary_of
from bvat.store.store import RunSpec, RunStore, SeedTrainer, train_seeds
from bvat.training.settings import Settings
from cli_helpers import bvat

VAT = "[bold]vat\x1b[31m"
"""A folder whose name is markup and changes the colours of a terminal."""


def make_run(graph: Graph, path: Path, settings: Settings, seeds: list[int]) -> None:
    folder = RunFolder(path)
    folder.start(graph, settings, resume=False)
    results = train_seeds(SeedTrainer(folder, graph, settings), seeds, 1)
    folder.summarize(seeds, summary_of(graph, settings, results))


@pytest.fixture(scope="module")
def runs(small: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs with two seeds in common, and one on another split."""
    root = tmp_path_factory.mktemp("runs")
    make_run(small, root / "plain", Settings(method="none", epochs=8, alpha=0), [0, 1, 2])
    make_run(small, root / "deep" / VAT, Settings(method="vat", epochs=8, patience=2), [1, 2])
    other = synthetic_graph(nodes=120, edges=300, features=40, classes=3, train_per_class=5, val=30, seed=7)
    make_run(other, root / "other", Settings(method="none", epochs=3), [0])
    return root


def table(*arguments: str, capsys: pytest.CaptureFixture[str]) -> Any:
    code, out, err = bvat(["runs", *arguments, "--json"], capsys)
    assert code == 0, err
    return json.loads(out)


def test_list_finds_runs_in_subfolders(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = table("list", str(runs), capsys=capsys)["runs"]
    assert [Path(row["run"]).name for row in found] == [VAT, "other", "plain"]
    plain = next(row for row in found if row["run"].endswith("plain"))
    stored = json.loads((runs / "plain" / "result.json").read_text("utf-8"))
    assert plain["seeds"] == [0, 1, 2]
    assert (plain["dataset"], plain["model"], plain["method"]) == ("synthetic", "gcn", "none")
    for name, key in (("val", "val_accuracy"), ("test", "test_accuracy"), ("macro_f1", "test_macro_f1")):
        assert plain[name] == {part: stored[key][part] for part in plain[name]}


def test_list_prints_a_table(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    code, out, _ = bvat(["runs", "list", str(runs)], capsys)
    assert code == 0
    assert r"[bold]vat\x1b[31m" in out
    assert "3 runs in" in out


def test_damaged_and_unfinished_runs_are_listed(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs / "plain", tmp_path / "unfinished")
    shutil.rmtree(tmp_path / "unfinished" / "seed-0")
    (tmp_path / "unfinished" / "seed-1" / "result.json").rename(
        tmp_path / "unfinished" / "seed-1" / "checkpoint.safetensors"
    )
    (tmp_path / "unfinished" / "seed-2" / "result.json").write_text("[1, 2")
    for name, content in (("broken", "{"), ("list", "[]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "settings.json").write_text(content)
    found = table("list", str(tmp_path), capsys=capsys)
    assert [(Path(r["run"]).name, r["seeds"], r["unfinished"], r["damaged"]) for r in found["runs"]] == [
        ("unfinished", [], 1, [2])
    ]
    assert found["runs"][0]["test"]["mean"] is None
    assert len(found["faults"]) == 3
    code, _, err = bvat(["runs", "list", str(tmp_path)], capsys)
    assert code == 0
    assert err.count("note: ") == 3


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def copy_of_seed_0(run: Path) -> None:
    shutil.rmtree(run / "seed-1")
    shutil.copytree(run / "seed-0", run / "seed-1")


def replace_by_a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda run: flip_a_bit(run / "seed-1" / "result.json"), "result.json: "),
        (lambda run: flip_a_bit(run / "seed-1" / "weights.safetensors"), "weights.safetensors does not have"),
        (lambda run: flip_a_bit(run / "seed-1" / "metrics.csv"), "metrics.csv does not have the checksum"),
        (lambda run: (run / "seed-1" / "weights.safetensors").unlink(), "weights.safetensors"),
        (lambda run: replace_by_a_fifo(run / "seed-1" / "result.json"), "not a regular file"),
        (lambda run: replace_by_a_fifo(run / "seed-1" / "metrics.csv"), "not a regular file"),
        (copy_of_seed_0, "result.json: it belongs to seed 0, the folder is a copy"),
    ],
)
def test_damaged_seeds_are_named(
    runs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], None],
    reason: str,
) -> None:
    plain, vat = tmp_path / "plain", str(runs / "deep" / VAT)
    shutil.copytree(runs / "plain", plain)
    before = read_run(plain).values("test")
    damage(plain)
    (row,) = table("list", str(tmp_path), capsys=capsys)["runs"]
    assert (row["seeds"], row["damaged"]) == ([0, 2], [1])
    assert row["test"]["values"] == [before[0], before[2]]
    for arguments in (["list", str(tmp_path)], ["show", str(plain)], ["compare", str(plain), vat]):
        (fault,) = table(*arguments, capsys=capsys)["faults"]
        code, out, err = bvat(["runs", *arguments], capsys)
        assert code == 0
        assert err.splitlines()[0] == f"note: {fault}"
        assert f"{plain / 'seed-1'} is damaged and not counted" in fault
        assert reason in fault
        assert "--resume" in fault
        assert "2 of 3" in out
    assert table("compare", str(plain), vat, capsys=capsys)["differences"][0]["seeds"] == [2]


def test_a_seed_without_a_result_is_unfinished(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs / "plain", tmp_path / "plain")
    (tmp_path / "plain" / "seed-1" / "result.json").unlink()
    (row,) = table("list", str(tmp_path), capsys=capsys)["runs"]
    assert (row["seeds"], row["damaged"], row["unfinished"]) == ([0, 2], [], 1)
    assert "2 (+1)" in bvat(["runs", "list", str(tmp_path)], capsys)[1]
    shown = bvat(["runs", "show", str(tmp_path / "plain")], capsys)[1]
    assert "all 2 (+1)" in shown


def test_copies_of_a_seed_are_not_models_of_their_own(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, out = tmp_path / "plain", tmp_path / "out.csv"
    shutil.copytree(runs / "plain", plain)
    shutil.copytree(plain / "seed-0", plain / "seed-00")
    assert table("show", str(plain), capsys=capsys)["seeds"] == [0, 1, 2]
    code, said, _ = bvat(["predict", str(plain), "--out", str(out)], capsys)
    assert (code, "the mean of 3 models" in said) == (0, True)
    copy_of_seed_0(plain)
    for command in (["predict", "--out", str(out)], ["export", "--out", str(tmp_path / "m.safetensors")]):
        code, _, err = bvat([command[0], str(plain), *command[1:]], capsys)
        assert code == 2
        assert "it belongs to seed 0, the folder is a copy" in err
        assert "seed-1" in err
    code, said, _ = bvat(["predict", str(plain), "--seed", "0", "--out", str(out)], capsys)
    assert (code, "one model" in said) == (0, True)


def test_lines_are_not_broken(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    long = Path("runs") / ("a-long-name-of-an-experiment-" * 3) / "plain"
    shutil.copytree(runs / "plain", long)
    shutil.copytree(runs / "plain", "runs/a-usual-name-2")
    for arguments in (["list"], ["compare", str(long), "runs/a-usual-name-2"]):
        code, out, _ = bvat(["runs", *arguments], capsys)
        assert code == 0
        lines = out.splitlines()
        assert len([line for line in lines if line.endswith(f" {long}")]) == 1
        (usual,) = [line for line in lines if line.endswith(" runs/a-usual-name-2")]
        assert len(usual) <= 80


def test_long_names_of_data_sets_are_shortened(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(runs / "plain", "runs/plain")
    path = Path("runs/plain/settings.json")
    write_sealed_json(
        path, RunFolder(path.parent).read(path.name) | {"dataset": "papers-" + 90 * "x" + "-2026"}
    )
    _, out, _ = bvat(["runs", "list"], capsys)
    (line,) = [line for line in out.splitlines() if line.endswith(" runs/plain")]
    assert line.startswith("papers-x…xx-2026 ")
    assert len(line) <= 80


def test_listed_accuracies_have_their_intervals() -> None:
    none = {"mean": None, "std": None, "values": []}
    row = {
        "test": {"mean": 60.0, "std": None, "values": [60.0]},
        "nodes": {"test": 20},
        "cross_validation": None,
    }
    assert _accuracy(row) == "60.0 [39, 78]"
    assert _accuracy({**row, "nodes": {"test": 1000}}) == "60.0"
    folds = {"accuracy": 60.0, "nodes": 20, "low": 30.4, "high": 85.1}
    assert _accuracy({**row, "test": none, "nodes": {}, "cross_validation": folds}) == "60.0 [30, 85] cv"
    assert _accuracy({**row, "test": none, "val": row["test"], "nodes": {"val": 20}}) == "60.0 [39, 78] val"
    assert _accuracy({**row, "test": none, "val": none, "nodes": {}}) == "-"


def test_runs_inside_a_comparison_are_not_listed(
    small: Graph, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs / "plain", tmp_path / "plain")
    store = RunStore.open(tmp_path / "compared" / "work", {"small": small})
    store.run(RunSpec("small", Settings(method="none", epochs=3), 0))
    found = table("list", str(tmp_path), capsys=capsys)
    assert [Path(row["run"]).name for row in found["runs"]] == ["plain"]
    _, out, _ = bvat(["runs", "list", str(tmp_path)], capsys)
    assert "1 run in" in out


def test_show(runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = table("show", str(runs / "plain"), capsys=capsys)
    assert [result["seed"] for result in shown["results"]] == [0, 1, 2]
    assert shown["settings"]["epochs"] == 8
    code, out, _ = bvat(["runs", "show", str(runs / "deep" / VAT)], capsys)
    assert code == 0
    assert "differ from the defaults: epochs 8, patience 2" in out
    assert "gcn + vat on synthetic" in out


def test_compare_is_paired_by_seed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, vat = runs / "plain", runs / "deep" / VAT
    found = table("compare", str(plain), str(vat), capsys=capsys)
    (row,) = found["differences"]
    assert row["seeds"] == [1, 2]
    a, b = (read_run(path).values("test") for path in (plain, vat))
    assert row["test"]["values"] == [b[1] - a[1], b[2] - a[2]]
    assert row["test"]["mean"] == pytest.approx(sum(row["test"]["values"]) / 2)
    assert set(found["settings"]) == {"method", "alpha", "patience"}
    code, out, _ = bvat(["runs", "compare", str(plain), str(vat)], capsys)
    assert code == 0
    assert "method: none, vat" in out


def test_what_cannot_be_compared(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = str(runs / "plain")
    for arguments, sentence in (
        (["compare", plain], "at least two"),
        (["compare", plain, str(runs / "other")], "different graphs or splits"),
        (["compare", plain, "nowhere"], "not a run folder"),
        (["show", "nowhere"], "not a run folder"),
        (["list", "nowhere"], "there is no folder nowhere"),
    ):
        code, out, err = bvat(["runs", *arguments], capsys)
        assert (code, out) == (2, "")
        assert sentence in err
        assert err.count("\n") == 1
    apart = tmp_path / "apart"
    shutil.copytree(runs / "deep" / VAT, apart)
    for seed in (1, 2):
        shutil.rmtree(apart / f"seed-{seed}")
    with pytest.raises(SettingsError, match="no finished seed in common"):
        compare_runs([read_run(plain), read_run(apart)])


def completions(words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.setenv("_BVAT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"bvat {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" "))))
    code, out, _ = bvat([], capsys)
    assert code == 0
    return out.split()


def test_the_shell_completes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert completions("rep", monkeypatch, capsys) == ["reproduce"]
    assert completions("runs ", monkeypatch, capsys) == ["list", "show", "compare"]
    assert completions("train --method o", monkeypatch, capsys) == ["obvat"]
    assert completions("train --class-weights ", monkeypatch, capsys) == ["none", "balanced"]
    assert completions("train --res", monkeypatch, capsys) == ["--resume"]


def test_completion_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    code, out, _ = bvat(["--install-completion"], capsys)
    assert code == 0
    assert "bash completion installed" in out
    assert "_BVAT_COMPLETE=complete_bash" in (tmp_path / ".bash_completions" / "bvat.sh").read_text("utf-8")


def test_results_of_another_run_are_not_counted(
    small: Graph, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A seed folder that was copied from a run on another graph, or with other settings."""
    shutil.copytree(runs / "plain", tmp_path / "plain")
    other = RunFolder(tmp_path / "other")
    settings = Settings(method="none", epochs=2, hidden=3)
    other.start(small, settings, resume=False)
    train_seeds(SeedTrainer(other, small, settings), [7], 1)
    shutil.copytree(other.seed_path(7), tmp_path / "plain" / "seed-7")
    found = table("show", str(tmp_path / "plain"), capsys=capsys)
    assert (found["seeds"], found["damaged"]) == ([0, 1, 2], [7])
    assert "belongs to a run on another graph or with other settings" in found["faults"][0]
    assert RunFolder(tmp_path / "plain").result(7) is None


def test_a_damaged_choice_is_named_and_other_runs_are_listed(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("bit", "estimate", "pipe", "good"):
        shutil.copytree(runs / "plain", tmp_path / name)
    write_sealed_json(tmp_path / "bit" / "auto.json", {"estimate": None})
    flipped = (tmp_path / "bit" / "auto.json").read_text().replace("null", "mull")
    (tmp_path / "bit" / "auto.json").write_text(flipped)
    write_sealed_json(tmp_path / "estimate" / "auto.json", {"estimate": {"accuracy": "x"}})
    os.mkfifo(tmp_path / "pipe" / "auto.json")
    found = table("list", str(tmp_path), capsys=capsys)
    assert len(found["runs"]) == 4
    assert sorted(fault.split(" is left out")[0].rsplit("/")[-1] for fault in found["faults"]) == [
        "bit", "estimate", "pipe",
    ]  # fmt: skip
    for name in ("bit", "estimate", "pipe"):
        assert bvat(["runs", "show", str(tmp_path / name)], capsys)[0] == 0


def test_ctrl_c_during_the_import_of_a_compiled_module(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It arrives as an ImportError that was raised from the KeyboardInterrupt."""

    def interrupted(*_: Any, **__: Any) -> None:
        raise ImportError("initialization failed") from KeyboardInterrupt()

    monkeypatch.setattr("bvat.inference.records.find_runs", interrupted)
    code, _, said = bvat(["runs", "list"], capsys)
    assert (code, said.strip()) == (130, "bvat: interrupted")
