"""Write files atomically, completely or not at all, and read regular files only."""

from __future__ import annotations

import contextlib
import csv
import errno
import json
import os
import stat
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bvat.errors import DataError

_PREFIX, _SUFFIX = ".bvat-", ".part"
"""Names of temporary files: short, so that they fit wherever the name of the file itself does."""
_SEPARATORS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""What some program or other takes for the end of a line."""


def check_regular(path: Path) -> None:
    """Raise DataError if what exists is a folder, or a FIFO or device, which may never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise DataError(f"{path} is not a regular file: remove it")


def read_regular(path: Path) -> bytes:
    check_regular(path)
    return path.read_bytes()


def write_atomic(
    path: Path, content: bytes | str, *, new_folders: bool = True, special: bool = False
) -> None:
    """Write ``content`` to a temporary file beside ``path``, then move it into place.

    A reader of ``path`` sees either the old content or the new, even after a crash. Links are followed, and
    the mode of a file that exists is kept.

    Args:
        path: the file.
        content: text is encoded as UTF-8.
        new_folders: whether to create the folder of the file; without it, a folder that was removed in the
            meantime is an error.
        special: whether what is not a regular file (a device, a FIFO) may be written to, for paths that the
            user has named; otherwise it raises DataError.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        if new_folders:
            path.parent.mkdir(parents=True, exist_ok=True)
        known = path.stat() if path.exists() else None
        if known is not None and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if known is not None and not stat.S_ISREG(known.st_mode):
            if not special:
                check_regular(path)
            path.write_bytes(data)
        else:
            _replace(Path(os.path.realpath(path)), data, known)
    except OSError as error:
        error.filename = str(path)  # not the temporary file, and not nothing
        raise


def append(path: Path, content: bytes | str) -> None:
    """Add to the end of a file, or create it. A killed process may leave the addition incomplete."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        with path.open("ab") as file:
            file.write(data)
    except OSError as error:
        error.filename = str(path)
        raise


def _replace(target: Path, data: bytes, known: os.stat_result | None) -> None:
    temporary = target.with_name(f"{_PREFIX}{uuid.uuid4().hex[:8]}{_SUFFIX}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if known is not None:
            temporary.chmod(stat.S_IMODE(known.st_mode))
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_leftovers(folder: Path, *inside: str, older_than: float = 0.0) -> None:
    """Remove the temporary files of processes that were killed while they wrote.

    They are in ``folder`` and in subfolders that match one of ``inside``. Files younger than ``older_than``
    seconds may belong to a process that is still writing.
    """
    name = f"{_PREFIX}*{_SUFFIX}"
    for pattern in (name, *(f"{sub}/{name}" for sub in inside)):
        for path in folder.glob(pattern):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime >= older_than:
                    path.unlink()


def write_json(path: Path, content: Any) -> None:
    write_atomic(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    write_atomic(path, csv_text(header, rows))


def csv_text(header: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a table as CSV; cells that are None or NaN are empty, and no cell breaks a row."""
    lines: list[str] = []
    # csv quotes the cells with a character of the terminator, and with "\n" alone not those with a bare "\r"
    writer = csv.writer(SimpleNamespace(write=lines.append), lineterminator=_SEPARATORS)
    writer.writerow(header)
    for row in rows:  # only NaN differs from itself
        writer.writerow(["" if value is None or value != value else value for value in row])
    return "".join(f"{line.removesuffix(_SEPARATORS)}\n" for line in lines)
