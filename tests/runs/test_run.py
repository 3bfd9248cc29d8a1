"""``bvat.run``: what ``bvat train`` does, from Python."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

import bvat
from bvat.data import save_graph
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.inference.runs import open_run
from cli_helpers import bvat as command


def test_a_run_is_the_one_of_the_command(
    small: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save_graph(small, tmp_path / "small.npz")
    done = bvat.run(small.with_engine("compiled"), "vat", seeds=2, epochs=4, hidden=8)
    assert done.path == Path("runs/synthetic-vat")
    arguments = ["train", "small.npz", "--method", "vat", "--seeds", "2", "--jobs", "1", "--epochs", "4"]
    code, out, _ = command([*arguments, "--hidden", "8", "--json", "--no-report", "--out", "other"], capsys)
    printed = json.loads(out)
    assert code == 0
    for name in ("settings", "val_accuracy", "test_accuracy", "test_macro_f1", "space"):
        assert printed[name] == done.summary[name]
    for seed in (0, 1):
        ours, theirs = (load_file(f"{path}/seed-{seed}/weights.safetensors") for path in (done.path, "other"))
        assert all((ours[name] == theirs[name]).all() for name in ours)
    assert open_run(str(done.path)).seeds == (0, 1)
    assert (done.path / "report.html").is_file()
    assert not list(done.path.glob(".*"))  # the lock is gone


def test_finished_seeds_are_not_trained_again(small: Graph, tmp_path: Path) -> None:
    settings = bvat.preset("", "none", epochs=4, hidden=8)
    options = bvat.RunOptions(page=False)
    first = bvat.run(small, settings, folder=tmp_path / "run", seeds=[3, 1], options=options)
    files = {path: path.read_bytes() for path in first.path.rglob("seed-*/*")}
    with pytest.raises(SettingsError, match="already holds a run"):
        bvat.run(small, settings, folder=tmp_path / "run", seeds=[3, 1], options=options)
    more = bvat.run(small, settings, folder=tmp_path / "run", seeds=[3, 1, 2], resume=True, options=options)
    assert [result["seed"] for result in more.results] == [3, 1, 2]
    assert [result["selected"] for result in more.results[:2]] == [r["selected"] for r in first.results]
    assert {path: path.read_bytes() for path in files} == files
    assert not (first.path / "report.html").exists()
    with pytest.raises(SettingsError, match="hidden was 8, now 9"):
        bvat.run(small, settings, folder=tmp_path / "run", resume=True, options=options, hidden=9)


def test_cross_validation_is_kept(small: Graph, tmp_path: Path) -> None:
    """Without validation nodes, the number of epochs is found by cross-validation, and no second time."""
    few = replace(small, val=small.val[:0], test=small.test)
    options = bvat.RunOptions(page=False)
    done = bvat.run(few, "vat", folder=tmp_path / "run", options=options, epochs=4, hidden=8)
    stored = (done.path / "auto.json").read_bytes()
    assert done.summary["cross_validation"]["nodes"] == len(few.train)
    again = bvat.run(few, "vat", folder=tmp_path / "run", resume=True, options=options, epochs=4, hidden=8)
    assert again.settings == done.settings
    assert (done.path / "auto.json").read_bytes() == stored


def test_wrong_settings_are_refused_before_there_is_a_folder(small: Graph, tmp_path: Path) -> None:
    for method, wrong, sentence in (
        ("vat", {"effort": 1}, "effort has no effect with vat"),
        ("vat", {"dropout": 1.0}, "dropout must be below 1"),
        ("auto", {"effort": 5}, "effort must be at most 4"),
        ("auto", {"neighbours": "near"}, "neighbours must be one of auto, given, features, both"),
    ):
        with pytest.raises(SettingsError, match=sentence):
            bvat.run(small, method, folder=tmp_path / "other", **wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "other").exists()


def test_without_a_console_notes_are_warnings(
    small: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("no page")

    monkeypatch.setattr("bvat.report.run_page.write_run_page", fail)
    with pytest.warns(UserWarning, match=r"the page was not written \(ZeroDivisionError: no page\)"):
        done = bvat.run(small, "none", folder=tmp_path / "run", epochs=3, hidden=8)
    assert (done.path / "result.json").is_file()
