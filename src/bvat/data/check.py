"""Compare a data set with its checksums, with the cached graph and with Table 1 of the paper."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bvat.data.folders import cache_folder
from bvat.data.loading import build_graph, cache_name, find_dataset
from bvat.data.registry import Dataset
from bvat.data.sources import Files, Status, inspect, obtain
from bvat.data.store import graph_to_bytes
from bvat.graph import Graph


@dataclass(frozen=True)
class FileCheck:
    """One raw file: where it is, and whether its sha256 is the registered one.

    For the cached graph: whether it is the graph that the raw files give.
    """

    name: str
    source: str
    ok: bool


@dataclass(frozen=True)
class CountCheck:
    """One count compared with Table 1; ``table1`` is None where the paper gives no number."""

    what: str
    table1: int | None
    found: float
    ok: bool
    note: str = ""


@dataclass(frozen=True)
class DatasetCheck:
    """The result of checking a data set."""

    dataset: str
    files: tuple[FileCheck, ...]
    counts: tuple[CountCheck, ...]
    validation: str

    @property
    def ok(self) -> bool:
        """Whether every checksum and every count agrees."""
        return all(file.ok for file in self.files) and all(row.ok for row in self.counts)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain data, ready for JSON."""
        return {"ok": self.ok, **asdict(self)}


def check(name: str) -> DatasetCheck:
    """Check the raw files of a data set, its cached graph and its counts, fetching the files if necessary.

    If ``$BVAT_DATA`` holds wrong files, these are listed and the graph is not built.

    Raises:
        DataError: the name is unknown, or the files are not on this machine and cannot be fetched.
    """
    dataset = find_dataset(name)
    everything = (*dataset.files, *dataset.optional, *dataset.equivalent)
    states = [status for status, _, _ in inspect(everything)]  # obtain() would raise at the first wrong one
    if any(state.source == "BVAT_DATA" and not state.good for state in states):
        return DatasetCheck(dataset.name, _local_checks(states), (), "not read")
    found = obtain(dataset)
    graph = build_graph(dataset, found)
    files = _used_checks(found) + _cached_check(graph, cache_name(dataset, found))
    return DatasetCheck(dataset.name, files, count(dataset, graph), graph.validation)


def count(dataset: Dataset, graph: Graph) -> tuple[CountCheck, ...]:
    """Compare the counts of a graph with those of Table 1.

    The paper counts edges as half the entries of the raw neighbour lists, including self-loops and repeated
    entries. The graph stores each edge between two different nodes once.
    """
    paper, repairs = dataset.table1, graph.repairs
    loops, repeated = repairs["self_loops"], repairs["duplicate_edges"]
    entries = 2 * graph.num_edges - repairs["one_way_edges"] + loops + repeated
    half = entries // 2 if entries % 2 == 0 else entries / 2
    rows = (
        ("nodes", paper.nodes, graph.num_nodes, ""),
        (
            "edges as Table 1 counts",
            paper.edges,
            half,
            f"half of the {entries:,} entries in the raw neighbour lists",
        ),
        (
            "distinct edges",
            None,
            graph.num_edges,
            f"without {loops:,} self-loop and {repeated:,} repeated entries",
        ),
        ("features", paper.features, graph.num_features, ""),
        ("classes", paper.classes, graph.num_classes, ""),
        ("training nodes", paper.train, len(graph.train), ""),
        ("validation nodes", None, len(graph.val), graph.validation),
        ("test nodes", None, len(graph.test), ""),
    )
    return tuple(
        CountCheck(what, table1, found, table1 is None or table1 == found, note)
        for what, table1, found, note in rows
    )


def _local_checks(states: list[Status]) -> tuple[FileCheck, ...]:
    here = [state for state in states if state.source is not None]
    return tuple(FileCheck(state.file.name, str(state.source), state.good) for state in here)


def _used_checks(found: Files) -> tuple[FileCheck, ...]:
    return tuple(FileCheck(name, hit.source, hit.file.matches(hit.content)) for name, hit in found.items())


def _cached_check(graph: Graph, name: str) -> tuple[FileCheck, ...]:
    """Compare the cached graph, if there is one, with the one built from the raw files."""
    folder = cache_folder()
    if folder is None or not (folder / name).exists():
        return ()
    try:
        same = (folder / name).read_bytes() == graph_to_bytes(graph, name)
    except OSError:
        same = False
    return (FileCheck(name, "cache", same),)
