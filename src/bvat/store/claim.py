"""Folders and pieces of work that one process has, locked with files whose locks end with the process."""

from __future__ import annotations

import contextlib
import errno
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, takewhile
from pathlib import Path

from filelock import FileLock, Timeout

from bvat.data.files import remove_leftovers
from bvat.errors import SettingsError
from bvat.store.pool import ReportProgress, Task, TaskFunction, run_tasks

LOCK = ".lock"
"""The end of the name of every file that is locked."""
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""What file systems answer that cannot lock (some network ones); they are used without."""


def choose_folder(parent: Path, name: str, *, resume: bool) -> Path:
    """Create and return a new folder ``name[-n]`` in ``parent``; with ``resume``, return the newest one."""
    candidates = (parent / (name if n == 1 else f"{name}-{n}") for n in count(1))
    if resume:
        existing = list(takewhile(Path.exists, candidates))
        if not existing:
            raise SettingsError(f"there is no run to resume at {parent / name}: give its folder with --out")
        return existing[-1]
    parent.mkdir(parents=True, exist_ok=True)
    while True:
        with contextlib.suppress(FileExistsError):  # two processes never get the same one
            (path := next(candidates)).mkdir()
            return path


@contextlib.contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Create a folder and hold it alone inside the block; SettingsError if another process holds it.

    What processes that were killed have left half written is removed, and so is the folder if it is empty at
    the end.
    """
    with _held(folder / LOCK, at_end=folder) as alone:
        if not alone:
            raise SettingsError(
                f"another process is working in {folder}: wait until it has ended, or use another --out"
            )
        remove_leftovers(folder, "seed-*")
        yield


@contextlib.contextmanager
def share(folder: Path) -> Iterator[bool]:
    """Create a folder and hold it together with others; yield whether there are none at the start."""
    with contextlib.ExitStack() as mine:
        with _held(folder / LOCK, wait=True, at_end=folder):  # one process at a time looks who is there
            alone = True
            for path in folder.glob(f".?*{LOCK}"):
                with _held(path) as ended:  # its process has ended if the lock is free
                    alone &= ended
            if alone:
                remove_leftovers(folder, "work/**", "runs/**", "pretrained/**")
            mine.enter_context(_held(folder / f".{uuid.uuid4().hex}{LOCK}", at_end=folder))
        yield alone


def taken(path: Path, *, wait: bool) -> contextlib.AbstractContextManager[bool]:
    """Hold one of several pieces of work inside the block; yield False if another process holds it.

    Processes on several machines can so share work in a folder that all of them see, if its file system has
    locks. With ``wait``, wait until the other process has ended or finished it.
    """
    return _held(path, wait=wait, keep=True)


@contextlib.contextmanager
def _held(
    path: Path, *, wait: bool = False, keep: bool = False, at_end: Path | None = None
) -> Iterator[bool]:
    """Lock a file, which is created, and remove it at the end; yield False if another process holds it."""
    lock = _lock(path, wait=wait)
    if lock is None:
        yield False
        return
    done = not keep
    try:
        yield True
        done = True
    finally:
        if done:  # while it is locked: whoever waits for the lock notices, and creates another file
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                if at_end is not None:
                    at_end.rmdir()
        lock.release()


def _lock(path: Path, *, wait: bool) -> FileLock | None:
    if path.parent.exists() and not path.parent.is_dir():
        raise SettingsError(f"{path.parent} is not a folder: use another --out")
    lock = FileLock(path, timeout=-1 if wait else 0)
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except Timeout:
            return None
        except FileNotFoundError:  # the folder has been removed since
            continue
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        return lock


def run_shared_tasks(
    function: TaskFunction[Task],
    tasks: Sequence[Task],
    lock: Callable[[Task], Path],
    jobs: int,
    progress: Callable[[Task, float], None],
) -> None:
    """Do all tasks that no other process does, then wait for those, and do what they have left undone.

    The other processes may run on other machines that see the same folder.
    """
    run_tasks(partial(_alone, function, lock, False), tasks, jobs, progress)
    left = [task for task in tasks if lock(task).exists()]
    run_tasks(partial(_alone, function, lock, True), left, jobs, progress)


def _alone(
    function: TaskFunction[Task], lock: Callable[[Task], Path], wait: bool, task: Task, report: ReportProgress
) -> None:
    with taken(lock(task), wait=wait) as mine:
        if mine:
            function(task, report)
