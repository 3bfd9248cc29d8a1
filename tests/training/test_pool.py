"""Processes that end early are noticed, and none is left behind."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import sys
import time

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


def slow(*values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (("signal", signal.SIGTERM), "a process was told to stop: run again"),
        slow(("signal", signal.SIGKILL), r"a process was killed \(out of memory\?\): run again"),
        slow(("exit", 0), "a process ended with code 0: run again"),
        slow(("exit", 3), "a process ended with code 3: run again"),
        (("error", errno.ENOSPC), r"^some/file cannot be .* \(No space left on device\): free some space"),
    ],
)
@pytest.mark.slow
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
    with stop_like_ctrl_c() as received:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)  # must not cut short what the first one has begun
    assert received == [signal.SIGHUP]
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_like_ctrl_c() as received:
            os.kill(os.getpid(), signal.SIGHUP)
        assert received == []
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
