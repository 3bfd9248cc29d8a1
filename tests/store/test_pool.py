"""Processes that end early are noticed, and none is left behind."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from bvat.errors import TrainingError
from bvat.store.pool import run_tasks
from bvat.training.interrupt import postpone_interrupts, stop_like_ctrl_c


def misbehave(task: tuple[str, int], report: Callable[[float], None]) -> None:
    what, number = task
    if what == "signal":
        os.kill(os.getpid(), number)
        time.sleep(600)
    if what == "exit":
        os._exit(number)
    if what == "error":
        raise OSError(number, os.strerror(number), "some/file")
    if what == "flood":  # reports faster than the parent reads, and cannot save when it is told to stop
        state = SimpleNamespace(interrupted=False)
        with postpone_interrupts(lambda: setattr(state, "interrupted", True)):
            while not state.interrupted:
                report(1.0)
            raise OSError(errno.ENOENT, "gone", "some/file")
    if what == "late error":
        time.sleep(1)
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


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_processes_that_cannot_save_end_all_the_same() -> None:
    tasks = [("flood", 0), ("flood", 0), ("late error", errno.ENOSPC), ("flood", 0)]
    with pytest.raises(TrainingError, match="No space left on device"):
        run_tasks(misbehave, tasks, 3, lambda *_: None)
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


def thread_limit(task: str, report: Callable[[float], None]) -> None:
    report(float(os.environ[task]))


@pytest.mark.slow
def test_the_libraries_under_numpy_have_as_many_threads_as_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    limits: list[float] = []
    run_tasks(
        thread_limit, ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"], 2, lambda _, n: limits.append(n), threads=1
    )
    assert limits == [1, 1]
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "OPENBLAS_NUM_THREADS" not in os.environ
