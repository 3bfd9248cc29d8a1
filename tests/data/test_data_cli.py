from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from data_files import nell_files, planetoid_files, small_registry
from typer.testing import CliRunner

import bvat
from bvat.cli.data import app
from bvat.data import registry
from bvat.errors import DataError
from bvat.store.folder import RunFolder
from bvat.store.results import summary_of
from bvat.store.store import SeedTrainer, train_seeds
from bvat.training.settings import preset

run = CliRunner()


@pytest.fixture(autouse=True)
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use_registry: Any) -> Path:
    use_registry()
    folder = tmp_path / "raw"
    folder.mkdir()
    for name, data in planetoid_files().items():
        (folder / name).write_bytes(data)
    monkeypatch.setenv("BVAT_DATA", str(folder))
    monkeypatch.setenv("COLUMNS", "120")
    return folder


def _json(*arguments: str, code: int = 0) -> Any:
    done = run.invoke(app, [*arguments, "--json"])
    assert done.exit_code == code, done.output
    assert done.stdout.count("\n") == 1
    return json.loads(done.stdout)


def test_list() -> None:
    rows = _json("list")["datasets"]
    assert [(row["name"], row["nodes"], row["raw_files"]) for row in rows] == [
        ("tiny", 14, "BVAT_DATA"),
        ("nell", 12, "not fetched"),
    ]
    table = run.invoke(app, ["list"])
    assert table.exit_code == 0
    assert "tiny" in table.stdout
    assert "not fetched" in table.stdout


def test_list_goes_on_when_a_file_is_wrong(raw: Path) -> None:
    (raw / "ind.tiny.x").write_bytes(b"wrong")
    assert [row["raw_files"] for row in _json("list")["datasets"]] == [
        "wrong file in BVAT_DATA",
        "not fetched",
    ]


def test_fetch_prepares_the_cache(cache: Path) -> None:
    told = _json("fetch", "tiny")
    assert told["dataset"] == "tiny"
    assert told["sources"] == ["BVAT_DATA"]
    assert told["validation"] == "official validation labels"
    assert [path.suffix for path in (cache / "graphs").iterdir()] == [".npz"]
    assert run.invoke(app, ["fetch", "tiny"]).stdout.startswith("Graph('tiny', 14 nodes")


def test_check_agrees() -> None:
    report = _json("check", "tiny")
    assert report["ok"] is True
    assert len(report["files"]) == 8
    counts = {row["what"]: row for row in report["counts"]}
    assert counts["edges as Table 1 counts"]["found"] == 16.5
    assert counts["edges as Table 1 counts"]["note"] == "half of the 33 entries in the raw neighbour lists"
    assert counts["distinct edges"]["found"] == 15
    assert counts["distinct edges"]["note"] == "without 2 self-loop and 2 repeated entries"
    table = run.invoke(app, ["check", "tiny"])
    assert table.exit_code == 0
    assert "33 entries" in table.stdout
    assert "DIFFERS" not in table.stdout


def test_check_of_a_graph_that_is_not_table_1s(monkeypatch: pytest.MonkeyPatch) -> None:
    book = small_registry("http://127.0.0.1:9/")
    book.datasets["tiny"].table1["nodes"] = 15
    monkeypatch.setattr(registry, "read_registry", lambda: book)
    report = _json("check", "tiny", code=1)
    assert report["ok"] is False
    assert [row["what"] for row in report["counts"] if not row["ok"]] == ["nodes"]
    table = run.invoke(app, ["check", "tiny"])
    assert table.exit_code == 1
    assert table.stdout.count("DIFFERS") == 1


def test_check_of_a_wrong_file(raw: Path) -> None:
    (raw / "ind.tiny.x").write_bytes(b"wrong")
    report = _json("check", "tiny", code=1)
    assert [file["name"] for file in report["files"] if not file["ok"]] == ["ind.tiny.x"]
    assert report["counts"] == []
    table = run.invoke(app, ["check", "tiny"])
    assert table.exit_code == 1
    assert "WRONG" in table.stdout
    assert "the graph was not built" in table.stdout


def test_check_of_nell_says_which_labels_validate(raw: Path) -> None:
    for name, data in nell_files().items():
        if not name.endswith("ally"):
            (raw / name).write_bytes(data)
    assert _json("check", "nell")["validation"] == "recovered labels (2 nodes from the sister splits)"


@pytest.mark.parametrize("command", ["fetch", "check"])
@pytest.mark.parametrize(
    ("name", "message"), [("tinny", r"did you mean tiny\?"), ("nell", "nell cannot be fetched")]
)
def test_errors_reach_the_main_command_as_they_are(command: str, name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        run.invoke(app, [command, name], catch_exceptions=False)


def test_check_notices_a_cached_graph_that_is_not_that_of_the_raw_files(cache: Path) -> None:
    _json("fetch", "tiny")
    assert [file["ok"] for file in _json("check", "tiny")["files"]] == [True] * 9
    (path,) = (cache / "graphs").iterdir()
    graph = bvat.data.load_graph(path, f"graphs/{path.name}")
    good = path.read_bytes()
    bvat.data.save_graph(replace(graph, features=graph.features.with_values(graph.features.values * 2)), path)
    report = _json("check", "tiny", code=1)
    assert [file["name"] for file in report["files"] if not file["ok"]] == [f"graphs/{path.name}"]
    assert torch.equal(bvat.load("tiny").features.values, graph.features.values)  # it is built again
    assert path.read_bytes() == good


def test_check_of_a_path(small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = RunFolder(Path("run"))
    settings = preset("none", "none", epochs=3)
    folder.start(small, settings, resume=False)
    results = train_seeds(SeedTrainer(folder, small, settings), [0], 1)
    folder.summarize([0], summary_of(small, settings, results))
    Path("run/note.txt").write_text("a text for people")
    report = _json("check", "run")
    assert report["ok"] is True
    assert [file["name"] for file in report["files"] if file["ok"] is None] == ["note.txt"]
    assert len(report["files"]) == 9
    assert run.invoke(app, ["check", "run"]).exit_code == 0
    for file in report["files"]:
        path = Path("run") / file["name"]
        good = path.read_bytes()
        path.write_bytes(good[:-9] + bytes([good[-9] ^ 2]) + good[-8:])
        found = _json("check", "run", code=int(file["ok"] or 0))["files"]
        assert file["ok"] is None or file["name"] in [each["name"] for each in found if each["ok"] is False]
        path.write_bytes(good)
    assert "WRONG" not in run.invoke(app, ["check", "run/seed-0/weights.safetensors"]).stdout
