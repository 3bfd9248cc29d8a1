"""Folders are claimed: new ones are never shared, and a second process is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from bvat.data import save_graph
from bvat.data.checksums import check_files
from bvat.errors import DataError, SettingsError
from bvat.graph import Graph
from bvat.store.claim import choose_folder, claim, share
from bvat.store.folder import AUTO_FILE, RunFolder
from bvat.training.settings import preset

SETTINGS = preset("none", "none", epochs=2, hidden=4)

HOLD = """
import sys, time
from pathlib import Path
from bvat.store.claim import claim, share

with {"claim": claim, "share": share}[sys.argv[2]](Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def holder(folder: Path, kind: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), kind], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    process.stdout.close()
    return process


@pytest.mark.slow
def test_a_folder_is_held_until_its_process_dies(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = holder(folder, "claim")
    with pytest.raises(SettingsError, match=r"another process is working in .*run"), claim(folder):
        pass
    assert folder.is_dir()  # its holder may not have written anything yet
    process.kill()
    process.wait()
    with claim(folder):
        (folder / "settings.json").touch()
    assert [path.name for path in folder.iterdir()] == ["settings.json"]


@pytest.mark.slow
def test_a_shared_folder_is_cleaned_by_who_is_alone(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    process = holder(folder, "share")
    leftover = folder / "work" / "runs" / "a" / "seed-0" / ".bvat-x.part"
    leftover.parent.mkdir(parents=True)
    leftover.touch()
    with share(folder) as alone:
        assert not alone
        assert leftover.exists()
    process.kill()
    process.wait()
    with share(folder) as alone:
        assert alone
        assert not leftover.exists()
    assert {path.name for path in folder.iterdir()} == {"work"}  # no lock is left, not even of the killed one


TRAIN = """
import sys, time
from pathlib import Path
from bvat.cli.main import main

here, name = Path(sys.argv[1]), sys.argv[2]
for number in range(4):
    (here / f"ready-{number}-{name}").touch()
    while len(list(here.glob(f"ready-{number}-*"))) < 4:
        time.sleep(0.001)
    options = "--method none --epochs 3 --hidden 4 --jobs 1 --no-report".split()
    try:
        main(["train", str(here / "graph.npz"), *options, "--out", str(here / f"run-{number}")])
    except SystemExit as ended:
        (here / f"ended-{number}-{name}").write_text(str(ended.code))
"""


@pytest.mark.slow
def test_of_processes_that_train_into_one_folder_one_wins(graph: Graph, tmp_path: Path) -> None:
    save_graph(graph, tmp_path / "graph.npz")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", TRAIN, str(tmp_path), name],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in "abcd"
    ]
    said = [process.communicate(timeout=300)[1] for process in processes]
    for number in range(4):
        codes = sorted(path.read_text() for path in tmp_path.glob(f"ended-{number}-*"))
        assert codes == ["0", "2", "2", "2"], said
        assert RunFolder(tmp_path / f"run-{number}").result(0) is not None
    refused = [line for text in said for line in text.splitlines() if line.startswith("bvat: ")]
    assert len(refused) == 12
    assert all("another process is working in" in line or "already holds a run" in line for line in refused)


def test_a_folder_that_stays_empty_is_removed(tmp_path: Path) -> None:
    with claim(tmp_path / "run"):
        assert (tmp_path / "run").is_dir()
    assert not (tmp_path / "run").exists()
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="is not a folder"), claim(tmp_path / "file"):
        pass


@pytest.mark.slow
def test_new_folders_are_never_shared(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: choose_folder(tmp_path / "runs", "x-gcn", resume=False), range(24)))
    assert {path.name for path in made} == {"x-gcn", *(f"x-gcn-{n}" for n in range(2, 25))}
    assert choose_folder(tmp_path / "runs", "x-gcn", resume=True).name == "x-gcn-24"


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


@pytest.mark.parametrize("name", ["graph.npz", "split.npz"])
def test_a_run_is_not_continued_with_damaged_files(graph: Graph, tmp_path: Path, name: str) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.start(graph, SETTINGS, resume=False)
    path = folder.path / name
    good = path.read_bytes()
    for place in range(0, len(good), len(good) // 20):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(DataError, match=rf"{name} is damaged .*: delete it, and --resume"):
            folder.start(graph, SETTINGS, resume=True)
    path.unlink()
    folder.start(graph, SETTINGS, resume=True)
    assert path.read_bytes() == good
    assert all(file.ok for file in check_files(folder.path))


@pytest.mark.parametrize("files", [None, 7, ["graph.npz"], "graph.npz"])
def test_a_run_is_not_continued_without_the_list_of_its_files(
    graph: Graph, tmp_path: Path, files: object
) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.start(graph, SETTINGS, resume=False)
    folder.write("settings.json", {**folder.read("settings.json"), "files": files})
    with pytest.raises(DataError, match=r"settings\.json is damaged \(it lists no files\)"):
        folder.start(graph, SETTINGS, resume=True)


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
