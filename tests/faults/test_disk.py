"""Disks that are full, read-only or gone, and two processes in a folder: one sentence, nothing is lost."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Forker, content_of, is_sentence, wait_until
from tally import Tally, times

from cli_helpers import bvat

RUN = ["--method", "obvat", "--epochs", "120", "--patience", "120", "--hidden", "8", "--device", "cpu"]
RUN += ["--no-report"]
TUNE = ["--method", "vat", "--trials", "1", "--epochs", "2", "--out"]

Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


@pytest.fixture(scope="module")
def whole(small_graph: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two seeds that nothing has disturbed, and in ``first`` its first seed alone."""
    folder = tmp_path_factory.mktemp("whole")
    for name, seeds in (("first", "1"), ("run", "2")):
        with pytest.raises(SystemExit) as ended:
            train(small_graph, folder / name, seeds)
        assert ended.value.code == 0
    return folder


def train(small_graph: str, out: Path, seeds: str = "2", *more: str) -> None:
    from bvat.cli.main import main

    main(["train", small_graph, *RUN, "--seeds", seeds, "--jobs", "1", "--out", str(out), *more])


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """Mount a small disk, or skip the test where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path, left: int) -> Path:
    """Fill a disk but for ``left`` bytes."""
    filler = disk / "filler"
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    filler.write_bytes(bytes(free - left))
    return filler


SENTENCE = "one sentence, older results intact, bit-identical once resumed"


def test_a_disk_runs_full(
    start: Forker, small_graph: str, whole: Path, tmp_path: Path, tally: list[Tally], capsys: Capture
) -> None:
    """A second seed is added to a run on a disk that fills up at one point or another."""
    tally.append(Tally("disk", "full disk during bvat train", SENTENCE))
    page = os.sysconf("SC_PAGESIZE")
    with small_disk(tmp_path / "disk", 200 * page) as disk:
        for left in range(0, 26, times(3, 6)):
            run = disk / "run"
            shutil.copytree(whole / "first", run)
            before = content_of(run)
            filler = fill(disk, left * page)
            arguments = ["train", small_graph, *RUN, "--seeds", "2", "--jobs", "2" if left == 6 else "1"]
            arguments += ["--out", str(run), "--resume"]
            command = start.start(arguments, tmp_path)
            code = command.wait()
            refused = code == 2 and is_sentence(command.error) and "No space left on device" in command.error
            after, final = content_of(run), content_of(whole / "run")
            kept = all(after.get(name) in (content, final[name]) for name, content in before.items())
            filler.unlink()
            again, _, err = bvat(arguments, capsys)
            same = again == 0 and content_of(run) == final
            fits = code == 0 and left > 15  # then there was room for everything
            traceback = "Traceback" in command.error + err
            tally[-1].count(
                (refused or fits) and kept and same, lost=not (kept and same), traceback=traceback
            )
            shutil.rmtree(run)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_files_may_not_be_larger(
    jobs: str,
    start: Forker,
    small_graph: str,
    whole: Path,
    tmp_path: Path,
    tally: list[Tally],
    capsys: Capture,
) -> None:
    tally.append(Tally("disk", f"limit on file sizes during bvat train, --jobs {jobs}", SENTENCE))
    for limit in (0, 1500, 15000) if jobs == "1" else (5000,):
        run = tmp_path / f"run-{limit}"
        arguments = ["train", small_graph, *RUN, "--seeds", "2", "--out", str(run), "--resume", "--jobs"]
        log = Path("/dev/null") if limit < 500 else None  # or the sentence itself is too long
        command = start.start([*arguments, jobs], tmp_path, limit=limit, stderr=log)
        refused = command.wait() == 2 and (log is not None or is_sentence(command.error))
        code, _, err = bvat([*arguments, "1"], capsys)
        same = code == 0 and content_of(run) == content_of(whole / "run")
        tally[-1].count(refused and same, lost=not same, traceback="Traceback" in err)


@contextlib.contextmanager
def read_only(folder: Path, source: Path) -> Iterator[Path]:
    """Copy a folder to a place that cannot be written to, also not by root."""
    if os.geteuid() == 0:
        with small_disk(folder, 4_000_000) as disk:
            shutil.copytree(source, disk / "run")
            remount = ["mount", "-o", "remount,{}", str(disk)]
            subprocess.run([part.format("ro") for part in remount], check=True)
            yield disk
    else:
        shutil.copytree(source, folder / "run")
        made = [path for path in (folder, *folder.rglob("*")) if path.is_dir()]
        for path in made:
            path.chmod(0o555)
        yield folder
        for path in made:
            path.chmod(0o755)


def test_a_folder_is_read_only(
    small_graph: str, whole: Path, tmp_path: Path, tally: list[Tally], capsys: Capture
) -> None:
    tally.append(Tally("disk", "read-only folder", "one sentence, older results intact"))
    again = ["train", small_graph, *RUN, "--seeds", "2", "--jobs", "1", "--resume"]
    with read_only(tmp_path / "frozen", whole / "first") as frozen:
        before = content_of(frozen)
        for arguments in (
            [*again, "--out", str(frozen / "run")],
            ["train", small_graph, *RUN, "--out", str(frozen / "new")],
            ["predict", str(frozen / "run"), "--out", str(frozen / "predicted.csv")],
            ["predict", str(frozen / "run"), "--out", str(frozen / "run" / "settings.json")],
            ["tune", small_graph, *TUNE, str(frozen / "tune")],
            ["compare", small_graph, "--epochs", "4", "--val", "30", "--out", str(frozen / "compare")],
        ):
            code, out, err = bvat(arguments, capsys)
            refused = code == 2 and is_sentence(err) and not out
            kept = content_of(frozen) == before
            tally[-1].count(refused and kept, lost=not kept, traceback="Traceback" in err)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_folder_vanishes(
    jobs: str, start: Forker, small_graph: str, tmp_path: Path, tally: list[Tally]
) -> None:
    tally.append(Tally("disk", f"run folder removed during bvat train, --jobs {jobs}", "one sentence"))
    run = tmp_path / "run"
    arguments = ["train", small_graph, *RUN, "--epochs", "100000", "--patience", "100000", "--seeds", "2"]
    command = start.start([*arguments, "--jobs", jobs, "--out", str(run)], tmp_path)
    wait_until(lambda: list(run.glob("*/checkpoint*")) or command.ended())
    run.rename(tmp_path / "elsewhere")
    refused = command.wait() == 2 and is_sentence(command.error)
    tally[-1].count(refused and not run.exists(), traceback="Traceback" in command.error)


def test_two_processes_on_one_folder(
    start: Forker, small_graph: str, whole: Path, tmp_path: Path, tally: list[Tally], capsys: Capture
) -> None:
    tally.append(
        Tally("disk", "a second bvat train in the same folder", "one sentence, the first one goes on")
    )
    run = tmp_path / "run"
    long = ["train", small_graph, *RUN, "--epochs", "100000", "--patience", "100000", "--out", str(run)]
    first = start.start(long, tmp_path)
    wait_until(lambda: list(run.glob("*/checkpoint*")) or first.ended())
    for more in ([], ["--resume"], ["--resume", "--seeds", "2"]):
        code, out, err = bvat([*long, *more], capsys)
        refused = code == 2 and is_sentence(err) and "another process is working in" in err and not out
        tally[-1].count(refused and not first.ended(), traceback="Traceback" in err)
    first.send(15, "parent")
    assert first.wait() == 128 + 15
    assert not list(run.rglob(".*"))  # a lock that is a file would be left behind


def test_places_that_cannot_be_written(
    start: Forker, small_graph: str, whole: Path, tmp_path: Path, tally: list[Tally], capsys: Capture
) -> None:
    tally.append(Tally("disk", "--out in a place that does not exist or is too long", "one sentence"))
    (tmp_path / "file").write_text("keep me")
    places = ["/proc/run", "/proc/self/fd/run", "/dev/null/run", "/sys/run", "n" * 300, "n/" * 3000]
    places += [str(tmp_path / "file"), str(tmp_path / "file" / "run"), "\0"]
    run = str(whole / "run")
    for place in places:
        for arguments in (
            ["train", small_graph, *RUN, "--out", place],
            ["predict", run, "--out", f"{place}/x.csv"],
            ["tune", small_graph, "--jobs", "1", *TUNE, place],
            ["compare", small_graph, "--methods", "gcn", "--epochs", "4", "--val", "30", "--out", place],
        ):
            code, out, err = bvat(arguments, capsys)
            tally[-1].count(code == 2 and is_sentence(err) and not out, traceback="Traceback" in err)
    assert (tmp_path / "file").read_text() == "keep me"


def test_the_output_cannot_be_written(start: Forker, whole: Path, tmp_path: Path, tally: list[Tally]) -> None:
    tally.append(Tally("disk", "standard output or error on a full device", "one sentence, exit code 2"))
    predict = ["predict", str(whole / "run"), "--out"]
    for arguments in (
        ["data", "list"],
        ["--version"],
        ["--help"],
        [*predict, "a.csv"],
        [*predict, "/dev/full"],
    ):
        command = start.start(arguments, tmp_path, stdout=Path("/dev/full"))
        code = command.wait()
        tally[-1].count(code == 2 and is_sentence(command.error), traceback="Traceback" in command.error)
    command = start.start(["train", "no-such-graph"], tmp_path, stderr=Path("/dev/full"))
    tally[-1].count(command.wait() == 2)


def test_nobody_reads_the_output(whole: Path, small_graph: str, tmp_path: Path, tally: list[Tally]) -> None:
    tally.append(Tally("disk", "standard output that nobody reads", "nothing said, exit code 141"))
    train = ["train", small_graph, "--method", "none", "--epochs", "3", "--jobs", "1", "--no-report"]
    train += ["--out", "trained"]
    reader, writer = os.pipe()
    os.close(reader)
    for arguments in (
        ["--version"],
        ["train", "--help"],
        ["runs", "list", str(whole)],
        ["predict", str(whole / "run"), "--out", "/dev/stdout"],
        [*train, "--json"],
    ):
        command = [sys.executable, "-m", "bvat", *arguments]
        ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, cwd=tmp_path, check=False)
        tally[-1].count(ended.returncode == 141 and not ended.stderr.strip(), traceback=b"Tr" in ended.stderr)
    os.close(writer)
    assert (tmp_path / "trained" / "result.json").exists()
