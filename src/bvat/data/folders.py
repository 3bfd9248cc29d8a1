"""The folders that are searched for raw files, ``$BVAT_DATA`` and the cache, and writing to the cache."""

from __future__ import annotations

import os
import warnings
from functools import cache
from pathlib import Path

from bvat.data.files import remove_leftovers, write_atomic
from bvat.errors import DataError

SUBFOLDERS = ("", "planetoid", "nell")
"""Subfolders of ``$BVAT_DATA`` and of the cache that may contain raw files."""


def given_folder() -> Path | None:
    """Return the folder given by ``$BVAT_DATA``, or None if it is not set."""
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
    """Return ``$XDG_CACHE_HOME/bvat`` (default ``~/.cache/bvat``), or None without a home folder.

    The folder need not exist. A relative ``$XDG_CACHE_HOME`` is ignored, as the XDG specification requires.
    """
    value = os.environ.get("XDG_CACHE_HOME", "")
    if value and Path(value).is_absolute():
        return Path(value) / "bvat"
    try:
        return Path.home() / ".cache" / "bvat"
    except RuntimeError:
        return None


def read_from(folder: Path, name: str) -> tuple[Path, bytes] | None:
    """Return the path and content of a raw file in ``folder`` or its subfolders, or None if there is none."""
    for sub in SUBFOLDERS:
        path = folder / sub / name
        try:
            return path, path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as fault:
            raise DataError(f"{path} cannot be read ({fault.strerror}): make it a readable file") from None
    return None


def keep(relative: str, content: bytes) -> None:
    """Write a file to the cache; if that is not possible, warn once and continue."""
    folder = cache_folder()
    try:
        if folder is None:
            raise OSError("there is no home folder")
        write_atomic(folder / relative, content)
        remove_leftovers(folder, "**", older_than=3600)
    except OSError as fault:
        _warn_once(str(folder), fault.strerror or str(fault))


@cache
def _warn_once(folder: str, reason: str) -> None:
    warnings.warn(
        f"the cache {folder} cannot be written ({reason}), so data is prepared again each time: "
        "set XDG_CACHE_HOME to a writable folder",
        RuntimeWarning,
        stacklevel=3,
    )
