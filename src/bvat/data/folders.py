"""The two folders raw files are looked for in, and writing to the cache without leaving half a file."""

from __future__ import annotations

import os
import warnings
from functools import cache
from pathlib import Path

from bvat.data.files import write_atomic
from bvat.errors import DataError

SUBFOLDERS = ("", "planetoid", "nell")
"""Where in ``$BVAT_DATA`` and in the cache a raw file may lie."""


def given_folder() -> Path | None:
    """Return the folder that ``$BVAT_DATA`` names, None when it is not set."""
    value = os.environ.get("BVAT_DATA", "")
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise DataError(
            f"BVAT_DATA is {value!r}, which is not a folder: set it to a folder of raw files, or unset it"
        )
    return folder


def cache_folder() -> Path | None:
    """Return ``$XDG_CACHE_HOME/bvat`` (default ``~/.cache/bvat``), None when there is no home folder.

    The folder need not exist. A relative ``$XDG_CACHE_HOME`` is ignored, as the XDG specification asks.
    """
    value = os.environ.get("XDG_CACHE_HOME", "")
    if value and Path(value).is_absolute():
        return Path(value) / "bvat"
    try:
        return Path.home() / ".cache" / "bvat"
    except RuntimeError:
        return None


def read_from(folder: Path, name: str) -> tuple[Path, bytes] | None:
    """Return path and contents of a raw file in ``folder`` or its subfolders; None when it is not there."""
    for sub in SUBFOLDERS:
        path = folder / sub / name
        try:
            return path, path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as fault:
            raise DataError(
                f"{path} cannot be read ({fault.strerror}): make it a file that can be read"
            ) from None
    return None


def keep(relative: str, content: bytes) -> None:
    """Put a file into the cache; where that cannot be done say so once and go on without."""
    folder = cache_folder()
    try:
        if folder is None:
            raise OSError("there is no home folder")
        write_atomic(folder / relative, content)
    except OSError as fault:
        _warn_once(str(folder), fault.strerror or str(fault))


@cache
def _warn_once(folder: str, reason: str) -> None:
    warnings.warn(
        f"the cache {folder} cannot be written ({reason}), so data is prepared anew each time: "
        "set XDG_CACHE_HOME to a folder that can be written",
        RuntimeWarning,
        stacklevel=3,
    )
