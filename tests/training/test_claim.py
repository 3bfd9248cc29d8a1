"""Folders are claimed: new ones are never shared, and a second process is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.training.claim import claim, share
from bvat.training.run_folder import AUTO_FILE, RunFolder, choose_folder
from bvat.training.settings import preset

SETTINGS = preset("none", "gcn", epochs=2, hidden=4)

HOLD = """
import fcntl, os, sys, time
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), getattr(fcntl, sys.argv[2]))
print("held", flush=True)
time.sleep(600)
"""


def holder(folder: Path, kind: str) -> subprocess.Popen[str]:
    folder.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), kind], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    process.stdout.close()
    return process


@pytest.mark.skipif(os.name != "posix", reason="folders are locked on POSIX systems only")
def test_a_folder_is_held_until_its_process_dies(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = holder(folder, "LOCK_EX")
    with pytest.raises(SettingsError, match=r"another process is working in .*run"), claim(folder):
        pass
    process.kill()
    process.wait()
    with claim(folder):
        (folder / "settings.json").touch()
    assert [path.name for path in folder.iterdir()] == ["settings.json"]


@pytest.mark.skipif(os.name != "posix", reason="folders are locked on POSIX systems only")
def test_a_shared_folder_is_cleaned_by_who_is_alone(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    leftover = folder / "work" / "runs" / "a" / "seed-0" / ".bvat-x.part"
    leftover.parent.mkdir(parents=True)
    leftover.touch()
    process = holder(folder, "LOCK_SH")
    with share(folder) as alone:
        assert not alone
        assert leftover.exists()
    process.kill()
    process.wait()
    with share(folder) as alone:
        assert alone
        assert not leftover.exists()


def test_a_folder_that_stays_empty_is_removed(tmp_path: Path) -> None:
    with claim(tmp_path / "run"):
        assert (tmp_path / "run").is_dir()
    assert not (tmp_path / "run").exists()
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="is not a folder"), claim(tmp_path / "file"):
        pass


def test_new_folders_are_never_shared(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(
            pool.map(lambda _: choose_folder(tmp_path / "runs", "x-gcn", resume=False).path, range(24))
        )
    assert {path.name for path in made} == {"x-gcn", *(f"x-gcn-{n}" for n in range(2, 25))}
    assert choose_folder(tmp_path / "runs", "x-gcn", resume=True).path.name == "x-gcn-24"


def test_a_run_continues_from_wherever_it_was_killed_at_the_start(graph: Graph, tmp_path: Path) -> None:
    whole = RunFolder(tmp_path / "whole")
    whole.start(graph, SETTINGS, resume=False)
    written = sorted(whole.path.iterdir(), key=lambda path: (path.stat().st_mtime_ns, path.name))
    assert written[0].name == "settings.json"
    for count in range(len(written) + 1):
        folder = RunFolder(tmp_path / str(count))
        folder.path.mkdir()
        for path in written[:count]:
            (folder.path / path.name).write_bytes(path.read_bytes())
        folder.start(graph, SETTINGS, resume=True)
        assert {p.name: p.stat().st_size for p in folder.path.iterdir()} == {
            p.name: p.stat().st_size for p in written
        }
    chosen = RunFolder(tmp_path / "auto")
    chosen.path.mkdir()
    (chosen.path / AUTO_FILE).write_text("{}")
    with pytest.raises(SettingsError, match="already holds a run: use --resume"):
        chosen.start(graph, SETTINGS, resume=False)
    chosen.start(graph, SETTINGS, resume=True)


def test_a_run_is_not_continued_with_another_graph_or_version(graph: Graph, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.start(graph, SETTINGS, resume=False)
    other = replace(graph, labels=graph.labels.flip(0))
    with pytest.raises(SettingsError, match="made with a different graph"):
        folder.start(other, SETTINGS, resume=True)
    about = folder.read("settings.json")
    (folder.path / "settings.json").write_text(json.dumps({**about, "version": "0.0.9"}))
    with pytest.raises(SettingsError, match=r"made with bvat 0\.0\.9, not .*: continue it with that version"):
        folder.start(graph, SETTINGS, resume=True)
