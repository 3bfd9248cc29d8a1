"""Folders and pieces of work that one process has: claimed with a lock that ends with the process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from bvat.data.files import remove_leftovers
from bvat.errors import SettingsError

try:
    import fcntl
except ImportError:  # not a POSIX system: folders are not locked
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Create a folder and hold it alone inside the block; SettingsError if another process holds it.

    What processes that were killed have left half written is removed, and so is the folder if it is empty at
    the end.
    """
    with _opened(folder) as handle:
        if not _lock(handle):
            raise SettingsError(
                f"another process is working in {folder}: wait until it has ended, or use another --out"
            )
        remove_leftovers(folder, "seed-*")
        yield


@contextlib.contextmanager
def share(folder: Path) -> Iterator[bool]:
    """Create a folder and hold it together with others; yield whether there are none at the start."""
    with _opened(folder) as handle:
        alone = _lock(handle)
        if alone:
            remove_leftovers(folder, "work/**", "runs/**", "pretrained/**")
        if handle is not None:
            with contextlib.suppress(OSError):
                # waits only while another process looks whether it is alone
                fcntl.flock(handle, fcntl.LOCK_SH)
        yield alone


@contextlib.contextmanager
def taken(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold one of several pieces of work inside the block; yield False if another process holds it.

    Processes on several machines can so share work in a folder that all of them see, if its file system has
    locks. With ``wait``, wait until the other process has ended or finished it.

    Args:
        path: a file for the lock; it is removed at the end.
        wait: whether to wait for another process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = None if fcntl is None else os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        mine = _lock(handle, wait=wait)
        yield mine
        if mine:
            path.unlink(missing_ok=True)
    finally:
        if handle is not None:
            os.close(handle)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int | None]:
    if folder.exists() and not folder.is_dir():
        raise SettingsError(f"{folder} is not a folder: use another --out")
    folder.mkdir(parents=True, exist_ok=True)
    handle = None if fcntl is None else os.open(folder, os.O_RDONLY)
    try:
        yield handle
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()
        if handle is not None:
            os.close(handle)


def _lock(handle: int | None, *, wait: bool = False) -> bool:
    """Lock a file, or a folder itself so that no file is left behind; False if another process holds it.

    File systems that cannot lock (some network ones) are used without a lock.
    """
    if handle is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        except OSError:
            pass
    return True
