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
    with _held_folder(folder) as (alone, _):
        if not alone:
            raise SettingsError(
                f"another process is working in {folder}: wait until it has ended, or use another --out"
            )
        remove_leftovers(folder, "seed-*")
        yield


@contextlib.contextmanager
def share(folder: Path) -> Iterator[bool]:
    """Create a folder and hold it together with others; yield whether there are none at the start."""
    with _held_folder(folder) as (alone, handle):
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
    handle, mine = _hold(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, wait=wait)
    try:
        yield mine
        if mine:
            path.unlink(missing_ok=True)
    finally:
        _close(handle)


@contextlib.contextmanager
def _held_folder(folder: Path) -> Iterator[tuple[bool, int | None]]:
    """Create and lock a folder; yield whether this process alone has it, and its descriptor.

    The folder is removed at the end if it is empty and no other process holds it then.
    """
    if folder.exists() and not folder.is_dir():
        raise SettingsError(f"{folder} is not a folder: use another --out")
    handle, alone = _hold(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield alone, handle
    finally:
        if alone and _lock(handle) and _is_still(folder, handle):
            with contextlib.suppress(OSError):
                folder.rmdir()
        _close(handle)


def _hold(path: Path, flags: int, *, wait: bool = False) -> tuple[int | None, bool]:
    """Open and lock a file, or a folder itself so that no file is left behind.

    Between opening and locking, the process that had the lock may have removed what was opened, and another
    one may have created and locked its successor. A lock counts only on what is still at the path.

    Args:
        path: with O_CREAT in ``flags`` a file; otherwise a folder, which is created.
        flags: for opening it.
        wait: whether to wait for a process that holds it.

    Returns:
        The descriptor (None where there are no locks), and whether it is locked: False if another process
        holds it.
    """
    while True:
        if not flags & os.O_CREAT:
            path.mkdir(parents=True, exist_ok=True)
        if fcntl is None:
            return None, True
        try:
            handle = os.open(path, flags, 0o666)
        except FileNotFoundError:  # removed since
            continue
        mine = _lock(handle, wait=wait)
        if _is_still(path, handle):
            return handle, mine
        os.close(handle)


def _lock(handle: int | None, *, wait: bool = False) -> bool:
    """Lock an open file or folder; False if another process holds it.

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


def _is_still(path: Path, handle: int | None) -> bool:
    """Return whether what was opened is what the path leads to now."""
    try:
        return handle is None or os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _close(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)
