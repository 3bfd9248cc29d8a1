"""Runs that are killed or told to stop, and continued: the result is that of a run left alone."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from commands import SIGNALS, Command, Forker, content_of, is_sentence, wait_until, without_times
from tally import Tally, times

from cli_helpers import bvat

KILLS = times(20, 3)
RUN = ["--method", "obvat", "--epochs", "120", "--patience", "120", "--hidden", "8", "--seeds", "2"]
RUN += ["--device", "cpu", "--no-report"]

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


def wait_for_workers(command: Command) -> None:
    wait_until(lambda: command.workers() or command.ended())


def timed(command: Command) -> tuple[float, float]:
    """Return after how many seconds a command that is left alone has workers, and ends."""
    began = time.monotonic()
    wait_for_workers(command)
    middle = time.monotonic() - began
    assert command.wait() == 0, command.error
    return middle, time.monotonic() - began


def test_train_is_killed_at_random_moments(
    start: Forker, small_graph: str, tmp_path: Path, tally: list[Tally], capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(15)
    train = ["train", small_graph, *RUN, "--out"]
    working, whole = timed(start.start([*train, "whole", "--jobs", "2"], tmp_path))
    expected = content_of(tmp_path / "whole")
    assert {"seed-0/weights.safetensors", "seed-1/weights.safetensors", "result.json"} <= expected.keys()
    counts = {
        target: Tally(
            "kills", f"bvat train with two seeds, SIGKILL of {what}", "resumed, bit-identical result"
        )
        for target, what in {"parent": "the parent", "worker": "a worker", "group": "everything"}.items()
    }
    tally += counts.values()
    for attempt in range(KILLS):
        target = list(counts)[attempt % len(counts)]
        out = f"killed-{attempt}"
        command = start.start([*train, out, "--jobs", "2"], tmp_path)
        if target == "worker":
            wait_for_workers(command)
            time.sleep(rng.uniform(0, whole - working))
        else:
            time.sleep(rng.uniform(0, whole))
        command.send(signal.SIGKILL, target)
        said = command.wait() != 2 or is_sentence(command.error)  # the parent of a killed worker
        message = command.error
        code, _, err = bvat([*train, str(tmp_path / out), "--resume", "--jobs", "1"], capsys)
        same = code == 0 and content_of(tmp_path / out) == expected
        counts[target].count(same and said, lost=not same, traceback="Traceback" in message + err)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_train_is_told_to_stop(
    jobs: str,
    start: Forker,
    small_graph: str,
    tmp_path: Path,
    tally: list[Tally],
    capsys: pytest.CaptureFixture[str],
) -> None:
    train = ["train", small_graph, *RUN, "--out"]
    assert bvat([*train, str(tmp_path / "whole"), "--jobs", "1"], capsys)[0] == 0
    expected = content_of(tmp_path / "whole")
    signals = list(SIGNALS.items())
    for place, (name, number) in enumerate(signals[: times(3, 2)] if jobs == "2" else signals):
        each = ("parent", "group")
        targets = each if times(2, 1) == 2 else (each[place % 2],)
        for target in targets if jobs == "2" else ("parent",):
            what = f"bvat train, {jobs} process{'es' * (jobs == '2')}, {name} to "
            count = Tally(
                "signals",
                what + {"parent": "the parent", "group": "all of them"}[target],
                "one sentence, no process left, resumed, bit-identical result",
            )
            tally.append(count)
            out = tmp_path / f"{name}-{target}"
            command = start.start([*train, str(out), "--jobs", jobs], tmp_path)
            wait_until(lambda out=out, command=command: list(out.glob("*/checkpoint*")) or command.ended())
            command.send(number, target)
            stopped = command.wait() == 128 + number and is_sentence(command.error)
            checkpoints = list(out.glob("*/checkpoint.safetensors"))
            code, _, err = bvat([*train, str(out), "--resume", "--jobs", "1"], capsys)
            same = code == 0 and content_of(out) == expected
            traceback = "Traceback" in command.error + err
            count.count(stopped and same and bool(checkpoints), lost=not same, traceback=traceback)


def test_ctrl_c_while_workers_start(
    start: Forker, small_graph: str, tmp_path: Path, tally: list[Tally]
) -> None:
    """A terminal sends SIGINT to all processes: only the parent says something."""
    rng = random.Random(19)
    tally.append(Tally("signals", "bvat train, SIGINT to workers that start", "one sentence of the parent"))
    for attempt in range(times(20, 2)):
        command = start.start(["train", small_graph, *RUN, "--out", f"{attempt}", "--jobs", "2"], tmp_path)
        wait_for_workers(command)
        for worker in command.workers():  # before the parent ends them
            os.kill(worker, signal.SIGINT)
        time.sleep(rng.uniform(0, 0.5))
        command.send(signal.SIGINT, "group")
        survived = command.wait() in (0, 130) and (command.code == 0 or is_sentence(command.error))
        tally[-1].count(survived, traceback="Traceback" in command.error)


def disturbed(
    start: Forker, command: list[str], folder: Path, jobs: str, kills: int, capsys: pytest.CaptureFixture[str]
) -> list[bool]:
    """Kill a command again and again, then let it end; return whether the results are as undisturbed."""
    rng = random.Random(len(command))
    _, whole = timed(start.start([*command, "--jobs", jobs, "--out", "whole"], folder))
    expected = {
        path.name: without_times(json.loads(path.read_text())) for path in (folder / "whole").glob("*.json")
    }
    assert expected
    outcomes = []
    for attempt in range(kills):
        out = folder / f"killed-{attempt}"
        for target, number in (
            ("group", signal.SIGKILL),
            ("parent", signal.SIGTERM),
            ("parent", signal.SIGKILL),
        ):
            running = start.start([*command, "--jobs", jobs, "--out", str(out)], folder)
            time.sleep(rng.uniform(0, whole))
            running.send(number, target)
            running.wait()
            assert "Traceback" not in running.error, running.error
        code, _, err = bvat([*command, "--jobs", "1", "--out", str(out)], capsys)
        assert code == 0, err
        found = {path.name: without_times(json.loads(path.read_text())) for path in out.glob("*.json")}
        for results in (found, expected):
            for result in results.values():
                result.pop("command", None)  # names the folder
        outcomes.append(found == expected and not list(out.rglob(".*")))
    return outcomes


def test_tune_is_killed(
    start: Forker, small_graph: str, tmp_path: Path, tally: list[Tally], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tune", small_graph, "--method", "vat", "--trials", "6", "--seeds", "2", "--finalists", "2"]
    command += ["--check-seeds", "2", "--epochs", "60", "--json"]
    tally.append(
        Tally("kills", "bvat tune, killed twice and stopped once on its way", "run again, same result")
    )
    for same in disturbed(start, command, tmp_path, "1", times(3, 1), capsys):
        tally[-1].count(same, lost=not same)


def test_compare_is_killed(
    start: Forker, small_graph: str, tmp_path: Path, tally: list[Tally], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compare", small_graph, "--methods", "gcn,vat", "--labels", "3", "--splits", "2"]
    command += ["--val", "30", "--epochs", "100"]
    tally.append(
        Tally("kills", "bvat compare, killed twice and stopped once on its way", "run again, same result")
    )
    for same in disturbed(start, command, tmp_path, "2", times(2, 1), capsys):
        tally[-1].count(same, lost=not same)


def test_reproduce_is_killed(
    start: Forker, small_graph: str, tmp_path: Path, tally: list[Tally], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "table2", "--datasets", small_graph, "--seeds", "2", "--methods", "gcn,obvat"]
    tally.append(
        Tally("kills", "bvat reproduce, killed twice and stopped once on its way", "run again, same result")
    )
    jobs = str(times(2, 1))
    for same in disturbed(start, [*command, "--epochs", "100"], tmp_path, jobs, times(2, 1), capsys):
        tally[-1].count(same, lost=not same)
