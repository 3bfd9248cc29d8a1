"""Processes that end early are noticed, and none is left behind."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from bvat.errors import TrainingError
from bvat.training.interrupt import stop_like_ctrl_c
from bvat.training.pool import run_tasks


def misbehave(task: tuple[str, int], report: object) -> None:
    what, number = task
    if what == "signal":
        os.kill(os.getpid(), number)
        time.sleep(600)
    if what == "exit":
        sys.exit(number)
    if what == "error":
        raise OSError(number, os.strerror(number), "some/file")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (("signal", signal.SIGTERM), "a process was told to stop: run again"),
        (("signal", signal.SIGKILL), r"a process was killed \(out of memory\?\): run again"),
        (("exit", 0), "a process ended with code 0: run again"),
        (("exit", 3), "a process ended with code 3: run again"),
        (("error", errno.ENOSPC), r"^some/file cannot be .* \(No space left on device\): free some space"),
    ],
)
def test_a_process_that_ends_early_is_an_error(task: tuple[str, int], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        run_tasks(misbehave, [task, task], 2, lambda *_: None)
    assert not multiprocessing.active_children()


def test_signals_stop_like_ctrl_c_unless_they_are_ignored() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        with pytest.raises(KeyboardInterrupt), stop_like_ctrl_c() as received:
            os.kill(os.getpid(), number)
        assert received == [number]
        assert signal.getsignal(number) == signal.SIG_DFL
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_like_ctrl_c() as received:
            os.kill(os.getpid(), signal.SIGHUP)
        assert received == []
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def touch(path: Path, report: object) -> None:
    path.touch()


def test_code_in_the_current_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pickle", "json", "torch", "bvat"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'a').write('{name}\\n')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(path for path in sys.path if path and path != str(tmp_path))
    )
    run_tasks(touch, [tmp_path / "a", tmp_path / "b"], 2, lambda *_: None)
    assert (tmp_path / "b").exists()
    assert not (tmp_path / "owned").exists()
