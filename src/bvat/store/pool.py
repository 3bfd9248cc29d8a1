"""Tasks in parallel processes, with one thread per process unless asked otherwise."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
import torch.multiprocessing as mp

from bvat.engine.compiled.compile import tell, when_compiling
from bvat.errors import BvatError, TrainingError, explain
from bvat.store.claim import taken
from bvat.training.interrupt import STOP_SIGNALS, postpone_interrupts

Task = TypeVar("Task")

ReportProgress = Callable[[float], None]
"""Called by a task with how much of it is done, in a unit of its own."""
TaskFunction = Callable[[Task, ReportProgress], Any]
"""Does one task. It and the tasks are pickled: use functions of a module, methods and plain dataclasses."""

_INTERRUPTED = 75
"""The exit code of a process that was told to stop."""


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
    """Give each process its tasks over a pipe of its own: nothing is shared that a dead one leaves locked."""
    context = mp.get_context("spawn")
    workers: dict[Any, Any] = {}
    try:
        with _environment(threads), _sheltered(), _unbroken(advice):
            for _ in range(jobs):
                ours, theirs = context.Pipe()
                worker = context.Process(target=_worker, args=(function, threads, theirs), daemon=True)
                workers[ours] = worker
                worker.start()
                theirs.close()  # or the end of the process would not close the pipe
        _listen(workers, tasks, progress, advice)
        for connection, worker in workers.items():
            connection.close()
            worker.join()
    finally:
        _stop(workers)


def _listen(
    workers: Mapping[Any, Any],
    tasks: Sequence[Task],
    progress: Callable[[Task, float], None],
    advice: str,
) -> None:
    """Hand out the tasks and pass on reports until all are done; a process that ends early is an error."""
    waiting = iter(enumerate(tasks))
    remaining, talking = len(tasks), set(workers)
    while remaining:
        connection: Any
        for connection in wait(talking):
            try:
                kind, number, content = connection.recv()
                if kind == "ready" and (numbered := next(waiting, None)):
                    connection.send(numbered)
                elif kind == "ready":
                    talking.discard(connection)
                    connection.close()  # no more tasks
            except (EOFError, OSError):
                workers[connection].join()
                raise TrainingError(f"a process {_ending(workers[connection].exitcode)}: {advice}") from None
            if kind == "progress":
                progress(tasks[number], content)
            elif kind == "compiling":
                tell(content)
            elif kind == "done":
                remaining -= 1
            elif kind == "user error":
                raise TrainingError(content)
            elif kind == "error":
                raise RuntimeError(f"{tasks[number]} failed:\n{content}")


def _ending(code: int) -> str:
    if code == -9:
        return "was killed (out of memory?)"
    if code in (_INTERRUPTED, -signal.SIGTERM):
        return "was told to stop"
    return f"ended with code {code}" if code >= 0 else f"was ended by signal {-code}"


def _stop(workers: Mapping[Any, Any]) -> None:
    """Let processes finish their epoch and save it; Ctrl-C in the meantime ends them at once."""
    started = [worker for worker in workers.values() if worker.pid is not None]
    try:
        for connection in workers:
            connection.close()  # who waits for a task, or for us to listen, waits no longer
        for worker in started:
            worker.terminate()
        for worker in started:
            worker.join()
    except BaseException:
        for worker in started:
            worker.kill()
        raise


@contextlib.contextmanager
def _unbroken(advice: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise TrainingError(f"a process ended while it was started: {advice}") from None


@contextlib.contextmanager
def _sheltered() -> Iterator[None]:
    """Keep signals of the terminal away from processes started in the block.

    They inherit blocked signals, so that Ctrl-C does not end them before they have said how to handle it.
    Other threads of this process still receive them: it finishes starting processes first, because one that
    is started by half complains.
    """
    mask = getattr(signal, "pthread_sigmask", None)
    if mask is None:  # not a POSIX system
        yield
        return
    resource_tracker.ensure_running()  # if started later, with the first process, it would unblock SIGINT
    old = mask(signal.SIG_BLOCK, {signal.SIGINT, *STOP_SIGNALS} - {signal.SIGTERM})
    try:
        with postpone_interrupts():
            yield
    finally:
        mask(signal.SIG_SETMASK, old)


@contextlib.contextmanager
def _environment(threads: int) -> Iterator[None]:
    """Set the environment of processes started in the block.

    Python starts them with the current folder as the first place to import from, unless it is told not to.
    The libraries under numpy take a thread per core, and those of all processes would fight for the cores.
    """
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    before = dict(os.environ)
    os.environ.update(PYTHONSAFEPATH="1", **limits)
    try:
        yield
    finally:
        for name in ("PYTHONSAFEPATH", *limits):
            os.environ.pop(name)
            if name in before:
                os.environ[name] = before[name]


def _worker(function: Any, threads: int, parent: Any) -> None:
    """Ask for tasks and do them until there are none, then end without the interpreter's clean-up."""
    try:
        with when_compiling(lambda name: _say(parent, "compiling", 0, name)):
            _work(function, threads, parent)
        _end(0)
    except KeyboardInterrupt:
        _end(_INTERRUPTED)


def _end(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


def _work(function: Any, threads: int, parent: Any) -> None:
    for number in (signal.SIGINT, *STOP_SIGNALS):
        signal.signal(number, signal.SIG_IGN)  # the parent handles them
    signal.signal(signal.SIGTERM, _interrupt)  # finish the epoch and save a checkpoint
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    while (numbered := _next_task(parent)) is not None:
        number, task = numbered
        try:
            function(task, lambda done, number=number: _say(parent, "progress", number, done))
            _say(parent, "done", number)
        except BvatError as error:
            _say(parent, "user error", number, str(error))
        except OSError as error:
            _say(parent, "user error", number, explain(error))
        except Exception:
            _say(parent, "error", number, traceback.format_exc())


def _next_task(parent: Any) -> Any:
    _say(parent, "ready")
    try:
        return parent.recv()
    except (EOFError, OSError):  # the parent wants no more
        return None


def _say(parent: Any, kind: str, number: int = 0, content: Any = None) -> None:
    with contextlib.suppress(OSError):  # the parent no longer listens, but the epoch is still to be saved
        parent.send((kind, number, content))


def _end_with_parent() -> None:
    """End this process at once when the parent has died, whatever it is doing."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(_INTERRUPTED)


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


def run_shared_tasks(
    function: TaskFunction[Task],
    tasks: Sequence[Task],
    lock: Callable[[Task], Path],
    jobs: int,
    progress: Callable[[Task, float], None],
) -> None:
    """Do all tasks that no other process does, then wait for those, and do what they have left undone.

    Args:
        function: does a task unless it is finished already, see :func:`run_tasks`.
        tasks: in the order in which they are started.
        lock: returns a file that exists while a process is at a task; sent to worker processes.
        jobs: number of processes.
        progress: called with a task and how much of it is done.
    """
    run_tasks(_Alone(function, lock, wait=False).run, tasks, jobs, progress)
    left = [task for task in tasks if lock(task).exists()]
    run_tasks(_Alone(function, lock, wait=True).run, left, jobs, progress)


@dataclass(frozen=True)
class _Alone(Generic[Task]):
    function: TaskFunction[Task]
    lock: Callable[[Task], Path]
    wait: bool

    def run(self, task: Task, report: ReportProgress) -> Any:
        with taken(self.lock(task), wait=self.wait) as mine:
            if mine:
                self.function(task, report)
