"""Tasks in parallel processes, with one thread per process unless asked otherwise."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
import torch.multiprocessing as mp

from bvat.errors import BvatError, TrainingError

Task = TypeVar("Task")

ReportProgress = Callable[[float], None]
"""Called by a task with how much of it is done, in a unit of its own."""
TaskFunction = Callable[[Task, ReportProgress], Any]
"""Does one task. It and the tasks are pickled: use functions of a module, methods and plain dataclasses."""


def run_tasks(
    function: TaskFunction[Task],
    tasks: Sequence[Task],
    jobs: int,
    progress: Callable[[Task, float], None],
    *,
    threads: int = 1,
    advice: str = "run again with fewer --jobs, finished runs are kept",
) -> None:
    """Do all tasks, at most ``jobs`` in parallel; tasks write their results to files.

    Args:
        function: called with a task and a function that reports its progress.
        tasks: in the order in which they are started.
        jobs: number of processes; with 1, the tasks run in the current process.
        progress: called with a task and how much of it is done.
        threads: number of threads per process.
        advice: what the user can do if a process dies.
    """
    if jobs <= 1 or len(tasks) <= 1:
        with thread_count(threads):
            for task in tasks:
                function(task, lambda done, task=task: progress(task, done))  # type: ignore[misc]
    elif tasks:
        _run_in_processes(function, tasks, min(jobs, len(tasks)), progress, threads, advice)


def _run_in_processes(
    function: TaskFunction[Task],
    tasks: Sequence[Task],
    jobs: int,
    progress: Callable[[Task, float], None],
    threads: int,
    advice: str,
) -> None:
    context = mp.get_context("spawn")
    waiting, events = context.Queue(), context.Queue()
    for numbered in enumerate(tasks):
        waiting.put(numbered)
    for _ in range(jobs):
        waiting.put(None)
    workers = [
        context.Process(target=_worker, args=(function, threads, waiting, events, os.getpid()), daemon=True)
        for _ in range(jobs)
    ]
    for worker in workers:
        worker.start()
    try:
        remaining = set(range(len(tasks)))
        while remaining:
            try:
                kind, number, content = events.get(timeout=0.5)
            except queue.Empty:
                dead = [worker for worker in workers if worker.exitcode not in (None, 0)]
                if dead:
                    raise TrainingError(
                        f"a process ended with code {dead[0].exitcode} (out of memory?): {advice}"
                    ) from None
                continue
            if kind == "progress":
                progress(tasks[number], content)
            elif kind == "done":
                remaining.discard(number)
            elif kind == "user error":
                raise TrainingError(content)
            else:
                raise RuntimeError(f"{tasks[number]} failed:\n{content}")
        for worker in workers:
            worker.join()
    finally:
        for worker in workers:
            worker.terminate()


def _worker(function: Any, threads: int, waiting: Any, events: Any, parent: int) -> None:
    """Do tasks from the queue until it returns None; exit if the parent has died."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    signal.signal(signal.SIGTERM, _interrupt)  # finish the epoch and save a checkpoint
    torch.set_num_threads(threads)

    def report(number: int, done: float) -> None:
        if os.getppid() != parent:
            os._exit(1)
        events.put(("progress", number, done))

    try:
        while (numbered := waiting.get()) is not None:
            number, task = numbered
            try:
                function(task, lambda done, number=number: report(number, done))
                events.put(("done", number, None))
            except BvatError as error:
                events.put(("user error", number, str(error)))
            except Exception:
                events.put(("error", number, traceback.format_exc()))
    except KeyboardInterrupt:
        pass
    finally:
        # nothing is left to save: a process killed during shutdown must not print a traceback
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _interrupt(*_: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextlib.contextmanager
def thread_count(threads: int) -> Iterator[None]:
    """Set the number of threads of PyTorch inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
