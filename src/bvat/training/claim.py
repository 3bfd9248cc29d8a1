"""Folders that one process works in: claimed with a lock that ends with the process."""

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


def _lock(handle: int | None) -> bool:
    """Lock the folder itself, so that no file is left behind; False if another process holds it.

    File systems that cannot lock a folder (some network ones) are used without a lock.
    """
    if handle is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass
    return True
