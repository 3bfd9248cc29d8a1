"""Runs: keys, result files, and nothing done twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bvat.cli.main import main
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.paper import timing
from bvat.paper.request import Request, parse_seeds
from bvat.paper.targets import TARGETS, reproduce
from bvat.training.perform import perform
from bvat.training.runs import Run, Workshop
from bvat.training.settings import preset

QUICK = {"epochs": 3}


def workshop(folder: Path, graph: Graph) -> Workshop:
    return Workshop.open(folder, {"small": graph})


def run(seed: int = 0, kind: str = "accuracy", method: str = "gcn", **settings: Any) -> Run:
    return Run("small", preset("small", method, **{**QUICK, **settings}), seed, kind)


def test_a_key_changes_with_all_that_matters(small: Graph, tmp_path: Path) -> None:
    shop = workshop(tmp_path, small)
    other = replace(small, labels=(small.labels + 1) % 3)
    keys = {
        shop.key(run()),
        shop.key(run(seed=1)),
        shop.key(run(kind="curves")),
        shop.key(run(lr=0.02)),
        shop.key(run(method="vat")),
        workshop(tmp_path, other).key(run()),
    }
    assert len(keys) == 6
    assert workshop(tmp_path / "elsewhere", small).key(run()) == shop.key(run())


def test_a_damaged_result_is_done_again_and_others_are_not(small: Graph, tmp_path: Path) -> None:
    shop = workshop(tmp_path, small)
    runs = [run(seed=k) for k in range(3)]
    assert perform(shop, [*runs, *runs], jobs=1) == 3
    before = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*.json")}
    assert len(before) == 3
    damaged = shop.path(runs[1])
    damaged.write_text(damaged.read_text()[:-20])
    assert shop.result(runs[1]) is None
    assert perform(shop, runs, jobs=1) == 1
    for path, content in before.items():
        if path == damaged:
            assert json.loads(path.read_bytes())["result"]["last"] == json.loads(content)["result"]["last"]
        else:
            assert path.read_bytes() == content


def test_a_result_of_another_key_is_not_taken(small: Graph, tmp_path: Path) -> None:
    shop = workshop(tmp_path, small)
    perform(shop, [run()], jobs=1)
    shop.path(run(seed=1)).write_bytes(shop.path(run()).read_bytes())
    assert shop.result(run(seed=1)) is None


@pytest.mark.slow
def test_several_processes_give_the_same_numbers(small: Graph, tmp_path: Path) -> None:
    one, two = workshop(tmp_path / "one", small), workshop(tmp_path / "two", small)
    runs = [run(seed=k, method="obvat") for k in range(2)]
    perform(one, runs, jobs=1)
    perform(two, runs, jobs=2)
    for each in runs:
        first, second = one.result(each), two.result(each)
        assert first is not None
        assert second is not None
        assert first["last"] == second["last"]
        assert first["best"] == second["best"]


def test_curves_have_the_shape_of_the_search(small: Graph, tmp_path: Path) -> None:
    shop = workshop(tmp_path, small)
    curves = shop.do(run(kind="curves", epochs=30), lambda done: None)["curves"]
    assert set(curves) == {"on", "off"}
    for part in curves.values():
        assert {name: len(curve) for name, curve in part.items()} == {"vat": 11, "sbvat": 11, "obvat": 11}
    assert curves["off"]["vat"][0] < 0.1 * curves["off"]["vat"][1]  # a random direction does next to nothing
    assert curves["on"]["vat"][0] > curves["off"]["vat"][0]  # dropout alone makes two passes differ
    assert curves["off"]["obvat"][10] > curves["off"]["obvat"][0]


@pytest.mark.slow
def test_everything_can_be_asked_for(small_file: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(timing, "ROUNDS", 3)
    request = Request(datasets=[str(small_file)], seeds={"*": 2}, overrides={"epochs": 2})
    found = reproduce(list(TARGETS), request, tmp_path, jobs=1)
    assert list(found) == ["table2", "fig1a", "fig1b", "fig1c", "fig3", "fig4", "time"]
    assert all(json.loads((tmp_path / f"{name}.json").read_text()) == found[name] for name in found)
    cell = found["table2"]["cells"]["obvat"][str(small_file)]
    assert len(cell["last"]["values"]) == 2
    assert cell["paper"] is None
    assert [len(p["series"]) for p in found["fig1b"]["panels"]] == [2, 2]
    assert len(found["fig3"]["panels"][0]["series"][0]["mean"]) == 10
    assert found["time"]["times"][str(small_file)]["gcn"]["ratio"] == 1.0


def test_requests() -> None:
    assert parse_seeds("20,nell=10") == {"*": 20, "nell": 10}
    request = Request(datasets=["citeseer", "nell"], seeds=parse_seeds("4,nell=2"))
    assert request.datasets_of("table2") == ["citeseer", "nell"]
    assert request.datasets_of("fig3") == ["citeseer"]
    assert request.datasets_of("fig1a") == ["citeseer", "nell"]  # the paper shows neither there
    assert (len(request.seeds_of("nell")), len(request.seeds_of("citeseer"))) == (2, 4)
    assert Request().datasets_of("fig1c") == ["cora"]
    for wrong in ("", "0", "x", "cora=", "5,nell=-1"):
        with pytest.raises(SettingsError, match="--seeds"):
            parse_seeds(wrong)
    with pytest.raises(SettingsError, match="no method 'gat'"):
        Request(methods=["gat"])
    with pytest.raises(SettingsError, match="no 'fig9'"):
        reproduce(["fig9"], Request(), Path("nowhere"), 1)


@pytest.mark.slow
def test_killed_and_started_again_repeats_nothing(small_file: Path, tmp_path: Path) -> None:
    command = ["reproduce", "table2", "--datasets", str(small_file), "--seeds", "4", "--epochs", "300"]
    command += ["--methods", "gcn,obvat", "--json"]
    out = tmp_path / "killed"
    process = subprocess.Popen(
        [sys.executable, "-m", "bvat.cli.main", *command, "--out", str(out), "--jobs", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while len(list(out.rglob("*.json"))) < 2 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*.json")}
    assert 2 <= len(finished) < 8
    with pytest.raises(SystemExit) as ended:
        main([*command, "--out", str(out), "--jobs", "1"])
    assert ended.value.code == 0
    assert len(list((out / "runs").rglob("*.json"))) == 8
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    with pytest.raises(SystemExit):
        main([*command, "--out", str(tmp_path / "whole"), "--jobs", "1"])
    cells = [
        json.loads((folder / "table2.json").read_text())["cells"] for folder in (out, tmp_path / "whole")
    ]
    assert cells[0] == cells[1]
    assert (out / "report.html").exists()
