"""Tasks in parallel processes, with one thread per process unless asked otherwise.

The processes are those of :class:`concurrent.futures.ProcessPoolExecutor`. What it lacks is added here: a
process that is told to stop finishes its epoch and saves it, one that is killed is named with its probable
cause, and progress is shown.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import wait as wait_for_end
from typing import Any, NoReturn, TypeVar

import torch
import torch.multiprocessing as mp

from bvat.errors import TrainingError, explain
from bvat.training.interrupt import STOP_SIGNALS, postpone_interrupts

Task = TypeVar("Task")

ReportProgress = Callable[[float], None]
"""Called by a task with how much of it is done, in a unit of its own."""
TaskFunction = Callable[[Task, ReportProgress], Any]
"""Does one task. It and the tasks are pickled: use functions of a module, methods and plain dataclasses."""

_INTERRUPTED = 75
"""The exit code of a process that was told to stop."""
_REFRESH = 0.1
"""Seconds between two looks at the progress of all tasks."""


def run_tasks(
    function: TaskFunction[Task],
    tasks: Sequence[Task],
    jobs: int,
    progress: Callable[[Task, float], None],
    *,
    finished: Callable[[Task, Any], None] = lambda task, result: None,
    threads: int = 1,
    advice: str = "run again with fewer --jobs, finished runs are kept",
) -> list[Any]:
    """Do all tasks, at most ``jobs`` in parallel; return what ``function`` returned, in their order.

    Args:
        function: called with a task and a function that reports its progress.
        tasks: in the order in which they are started.
        jobs: number of processes; with 1, the tasks run in the current process.
        progress: called with a task and how much of it is done.
        finished: called with a task and its result.
        threads: number of threads per process.
        advice: what the user can do if a process dies.
    """
    if jobs < 2 or len(tasks) < 2:
        results = []
        with thread_count(threads):
            for task in tasks:
                results.append(function(task, partial(progress, task)))
                finished(task, results[-1])
        return results
    with _environment(threads):  # not from the current folder
        _start_tracker()
    context = mp.get_context("spawn")
    # memory that all processes see, without a lock that a killed one would leave locked
    done, stop = context.RawArray("d", len(tasks)), context.RawValue("b", 0)
    others, workers = set(multiprocessing.active_children()), set[Any]()
    # the function, which may hold a graph, is sent to each process once, not with every task
    pool = ProcessPoolExecutor(min(jobs, len(tasks)), context, _begin, (function, threads, done, stop))
    try:
        futures = []
        with _environment(threads), _sheltered():
            for numbered in enumerate(tasks):
                futures.append(pool.submit(_do, *numbered))
                workers |= set(multiprocessing.active_children()) - others
        results = _follow(tasks, futures, done, progress, finished)
        pool.shutdown()
        return results
    except (BrokenProcessPool, BrokenPipeError):
        _stop(pool, workers, stop)
        raise TrainingError(f"a process {_ending({each.exitcode for each in workers})}: {advice}") from None
    except OSError as error:
        raise TrainingError(explain(error)) from error
    finally:
        _stop(pool, workers, stop)


def _follow(
    tasks: Sequence[Task],
    futures: Sequence[Future[Any]],
    done: Sequence[float],
    progress: Callable[[Task, float], None],
    finished: Callable[[Task, Any], None],
) -> list[Any]:
    """Pass on progress and results until all tasks are done; the first error of a task is raised."""
    task_of = dict(zip(futures, tasks, strict=True))
    shown, waiting = [0.0] * len(tasks), set(futures)
    while waiting:
        ended, waiting = wait(waiting, _REFRESH, FIRST_COMPLETED)
        before, shown = shown, list(done)
        for task, old, new in zip(tasks, before, shown, strict=True):
            if old != new:
                progress(task, new)
        for future in ended:
            finished(task_of[future], future.result())
    return [future.result() for future in futures]


def _stop(pool: ProcessPoolExecutor, workers: Iterable[Any], stop: Any) -> None:
    """Let processes finish their epoch and save it; Ctrl-C in the meantime ends them at once."""
    try:
        stop.value = 1
        for worker in workers:
            worker.terminate()
        pool.shutdown(cancel_futures=True)
        for worker in workers:
            worker.join()
    except BaseException:
        for worker in workers:
            worker.kill()
        raise


def _ending(codes: set[int | None]) -> str:
    """Say how the first process ended; the others were told to stop because of it."""
    code = next((code for code in codes if code not in (None, _INTERRUPTED, -signal.SIGTERM)), None)
    if code is None:
        return "was told to stop"
    if code == -9:
        return "was killed (out of memory?)"
    return f"ended with code {code}" if code >= 0 else f"was ended by signal {-code}"


@contextlib.contextmanager
def _blocked(*numbers: int) -> Iterator[None]:
    """Block signals in this thread, and in processes started in the block, which inherit it."""
    old = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


def _start_tracker() -> None:
    """Start Python's process for cleaning up semaphores, so that a closed terminal (SIGHUP) does not end it.

    If it were started later, with the first process, it would also unblock signals that are blocked then.
    """
    with _blocked(signal.SIGHUP):
        resource_tracker.ensure_running()


@contextlib.contextmanager
def _sheltered() -> Iterator[None]:
    """Keep signals of the terminal away from processes started in the block.

    Ctrl-C does not end them before they have said how to handle it. Other threads of this process still
    receive it: it finishes starting processes first, because one that is started by half complains.
    """
    with _blocked(signal.SIGINT, signal.SIGHUP), postpone_interrupts():
        yield


@contextlib.contextmanager
def _environment(threads: int) -> Iterator[None]:
    """Set the environment of processes started in the block.

    Python starts them with the current folder as the first place to import from, unless it is told not to.
    The libraries under numpy take a thread per core, and those of all processes would fight for the cores.
    """
    libraries = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    changed = {"PYTHONSAFEPATH": "1", **dict.fromkeys(libraries, str(threads))}
    before = {name: os.environ[name] for name in changed if name in os.environ}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name in changed:
            del os.environ[name]
        os.environ.update(before)


class _Worker:
    """What a process of the pool knows; :func:`_begin` sets it."""

    function: Callable[..., Any]
    done: Any
    """The progress of each task."""
    stop: Any
    """Whether no further task is to begin."""
    busy = False


def _begin(function: Callable[..., Any], threads: int, done: Any, stop: Any) -> None:
    for number in (signal.SIGINT, *STOP_SIGNALS):
        signal.signal(number, signal.SIG_IGN)  # the parent handles them
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    _Worker.function, _Worker.done, _Worker.stop = staticmethod(function), done, stop


def _do(number: int, task: Any) -> Any:
    try:
        try:
            _Worker.busy = True
            if _Worker.stop.value:
                raise KeyboardInterrupt
            return _Worker.function(task, partial(_Worker.done.__setitem__, number))
        finally:
            _Worker.busy = False
            if _Worker.stop.value:  # also after an error while saving: the result is not needed
                _end()
    except KeyboardInterrupt:
        _end()


def _interrupt(*_: Any) -> None:
    """Finish the epoch and save a checkpoint; end at once if there is no task."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not _Worker.busy:
        _end()
    raise KeyboardInterrupt


def _end() -> NoReturn:
    """End this process at once, without touching queues that a killed process may have left locked."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(_INTERRUPTED)


def _end_with_parent() -> None:
    """End this process when the parent has died, whatever it is doing."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for_end([parent.sentinel])
        os._exit(_INTERRUPTED)


@contextlib.contextmanager
def thread_count(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
