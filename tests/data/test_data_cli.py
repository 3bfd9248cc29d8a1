from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from data_files import planetoid_files
from typer.testing import CliRunner

from bvat.cli.data import app
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


def test_fetch() -> None:
    told = _json("fetch", "tiny")
    assert told["dataset"] == "tiny"
    assert told["sources"] == ["BVAT_DATA"]
    assert told["validation"] == "official validation labels"
    assert run.invoke(app, ["fetch", "tiny"]).stdout.startswith("Graph('tiny', 14 nodes")


def test_check_of_a_data_set(raw: Path) -> None:
    report = _json("check", "tiny")
    assert report["ok"] is True
    assert len(report["files"]) == 8
    assert run.invoke(app, ["check", "tiny"]).exit_code == 0
    (raw / "ind.tiny.x").write_bytes(b"wrong")
    report = _json("check", "tiny", code=1)
    assert [file["name"] for file in report["files"] if not file["ok"]] == [str(raw / "ind.tiny.x")]
    table = run.invoke(app, ["check", "tiny"])
    assert table.exit_code == 1
    assert table.stdout.count("WRONG") == 1


@pytest.mark.parametrize("command", ["fetch", "check"])
@pytest.mark.parametrize(
    ("name", "message"), [("tinny", r"did you mean tiny\?"), ("nell", "nell cannot be fetched")]
)
def test_errors_reach_the_main_command_as_they_are(command: str, name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        run.invoke(app, [command, name], catch_exceptions=False)


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
