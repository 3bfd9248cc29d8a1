"""Reproduction: requests, curves, and that nothing is computed twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bvat.data.checksums import read_sealed_json
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.paper.figures import CURVES
from bvat.paper.request import Request, parse_seeds
from bvat.paper.targets import TARGETS, reproduce
from bvat.store.store import RunSpec, RunStore
from bvat.training.settings import preset
from cli_helpers import bvat


def test_curves_have_the_shape_of_the_search(small: Graph, tmp_path: Path) -> None:
    store = RunStore.open(tmp_path, {"small": small})
    curves = store.run(RunSpec("small", preset("small", "none", epochs=15), 0, CURVES))["curves"]
    assert set(curves) == {"on", "off"}
    for part in curves.values():
        assert {name: len(curve) for name, curve in part.items()} == {"vat": 11, "sbvat": 11, "obvat": 11}
    assert curves["off"]["vat"][0] < 0.1 * curves["off"]["vat"][1]  # a random direction does next to nothing
    assert curves["on"]["vat"][0] > curves["off"]["vat"][0]  # dropout alone makes two passes differ
    assert curves["off"]["obvat"][10] > 10 * curves["off"]["obvat"][0]  # ten steps of Adam go far up


@pytest.mark.slow
def test_everything_can_be_asked_for(small_file: Path, tmp_path: Path) -> None:
    rows = ["lp", "gat", "gcn", "vat", "sbvat", "obvat"]
    request = Request([str(small_file)], rows, {"*": 2}, {"epochs": 2})
    found = reproduce(list(TARGETS), request, tmp_path, jobs=1)
    assert list(found) == ["table2", "fig1a", "fig1b", "fig1c", "fig3", "fig4"]
    assert all(read_sealed_json(tmp_path / f"{name}.json") == found[name] for name in found)
    cell = found["table2"]["cells"]["obvat"][str(small_file)]
    assert len(cell["last"]["values"]) == 2
    assert cell["paper"] is None
    assert [len(p["series"]) for p in found["fig1b"]["panels"]] == [2, 2]
    assert len(found["fig3"]["panels"][0]["series"][0]["mean"]) == 10


def test_requests() -> None:
    assert parse_seeds("20,nell=10") == {"*": 20, "nell": 10}
    request = Request(datasets=["citeseer", "nell"], seeds=parse_seeds("4,nell=2"))
    assert request.datasets_of("table2") == ["citeseer", "nell"]
    assert request.datasets_of("fig3") == ["citeseer"]
    assert request.datasets_of("fig1a") == ["citeseer", "nell"]  # the paper shows neither there
    assert (len(request.seeds_of("nell")), len(request.seeds_of("citeseer"))) == (2, 4)
    assert Request().datasets_of("fig1c") == ["cora"]
    assert parse_seeds("3,nell:GPNN/none=1") == {"*": 3, "nell:gpnn": 1}
    some = Request(seeds=parse_seeds("4,nell=3,nell:gat=2"))
    for dataset, row, number in (("nell", "gat", 2), ("nell", "gcn", 3), ("cora", "gat", 4)):
        assert len(some.seeds_for(dataset, row)) == number
    assert len(some.seeds_for("nell", "lp")) == 1
    more = Request(seeds=parse_seeds("4,cheap=6,citeseer=3,cora:vat=2"))
    cells = ("cora", "gcn", 6), ("cora", "monet", 6), ("cora", "vat", 2), ("cora", "gat", 4)
    for dataset, row, number in (*cells, ("citeseer", "gcn", 3), ("pubmed", "gcn", 4), ("cora", "lp", 1)):
        assert len(more.seeds_for(dataset, row)) == number
    with pytest.raises(SettingsError, match="no method 'gatt'"):
        parse_seeds("3,nell:gatt=2")
    for wrong in ("", "0", "x", "cora=", "5,nell=-1", ":gat=2", "nell:=2", "=2", "cheap:gat=2"):
        with pytest.raises(SettingsError, match="--seeds"):
            parse_seeds(wrong)
    with pytest.raises(SettingsError, match="no method 'nonsense'"):
        Request(methods=["nonsense"])
    assert "random-propagation/grand" in Request().rows_of("cora")
    assert "random-propagation/grand" not in Request().rows_of("nell")  # has no settings for that model
    assert "grand" not in Request().rows_of("cora")
    assert Request(methods=["appnp/vat", "gcn"]).rows_of("nell") == ["gcn", "appnp/vat"]
    with pytest.raises(SettingsError, match="no 'fig9'"):
        reproduce(["fig9"], Request(), Path("nowhere"), 1)


def test_rows_can_be_added_to_a_table(small_file: Path, tmp_path: Path) -> None:
    """The old rows stay as they are, and say which command made them."""

    def request(*methods: str) -> Request:
        return Request([str(small_file)], methods, {"*": 2}, {"epochs": 2}, command=f"bvat {methods}")

    first = reproduce(["table2"], request("gcn", "vat"), tmp_path, jobs=1)["table2"]
    both = reproduce(["table2"], request("appnp/vat", "flag"), tmp_path, jobs=1, add=True)["table2"]
    assert list(both["cells"]) == ["gcn", "vat", "flag", "appnp/vat"]
    assert both["cells"]["vat"] == first["cells"]["vat"]
    assert both["methods"]["appnp/vat"] == "APPNP + VAT"
    assert set(both["rows"]) == {"gcn", "vat"}
    assert both["rows"]["gcn"]["command"] == "bvat ('gcn', 'vat')"
    assert set(both["settings"]["small"]) == {"gcn", "vat", "flag", "appnp/vat"}
    third = reproduce(["table2"], request("gcn"), tmp_path, jobs=1, add=True)["table2"]
    assert set(third["rows"]) == {"vat", "flag", "appnp/vat"}
    assert third["rows"]["vat"]["command"] == "bvat ('gcn', 'vat')"
    assert third["cells"] == both["cells"]


@pytest.mark.slow
def test_killed_and_started_again_repeats_nothing(
    small_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "table2", "--datasets", str(small_file), "--seeds", "4", "--epochs", "300"]
    command += ["--methods", "gcn,obvat", "--json"]
    out = tmp_path / "killed"
    process = subprocess.Popen(
        [sys.executable, "-m", "bvat.cli.main", *command, "--out", str(out), "--jobs", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while (
        len(list(out.rglob("seed-*/result.json"))) < 2
        and time.monotonic() < deadline
        and process.poll() is None
    ):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("seed-*/result.json")}
    assert 2 <= len(finished) < 8
    assert bvat([*command, "--out", str(out), "--jobs", "1"], capsys)[0] == 0
    assert len(list((out / "runs").rglob("seed-*/result.json"))) == 8
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    bvat([*command, "--out", str(tmp_path / "whole"), "--jobs", "1"], capsys)
    cells = [
        json.loads((folder / "table2.json").read_text())["cells"] for folder in (out, tmp_path / "whole")
    ]
    assert cells[0] == cells[1]
    assert (out / "report.html").exists()
