"""Compare a data set with its checksums and with Table 1 of the paper."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bvat.data.loading import build_graph, find_dataset
from bvat.data.registry import Dataset
from bvat.data.sources import Files, Status, inspect, obtain
from bvat.graph import Graph


@dataclass(frozen=True)
class FileCheck:
    """One raw file: where it is, and whether its sha256 is the registered one."""

    name: str
    source: str
    ok: bool


@dataclass(frozen=True)
class CountCheck:
    """One count against Table 1; ``table1`` is None where the paper prints no such number."""

    what: str
    table1: int | None
    found: float
    ok: bool
    note: str = ""


@dataclass(frozen=True)
class Report:
    """The outcome of a check."""

    dataset: str
    files: tuple[FileCheck, ...]
    counts: tuple[CountCheck, ...]
    validation: str

    @property
    def ok(self) -> bool:
        """Whether every checksum and every count agrees."""
        return all(file.ok for file in self.files) and all(row.ok for row in self.counts)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data, for JSON."""
        return {"ok": self.ok, **asdict(self)}


def check(name: str) -> Report:
    """Check the raw files of a data set and count what is built from them, fetching it when it is not here.

    Wrong files in ``$BVAT_DATA`` are listed in the report, and nothing is built from them.

    Raises:
        DataError: the name is unknown, or the files are neither here nor to be had.
    """
    dataset = find_dataset(name)
    everything = (*dataset.files, *dataset.optional, *dataset.equivalent)
    states = [status for status, _, _ in inspect(everything)]  # obtain() would raise at the first wrong one
    if any(state.source == "BVAT_DATA" and not state.good for state in states):
        return Report(dataset.name, _local_checks(states), (), "not read")
    found = obtain(dataset)
    graph = build_graph(dataset, found)
    return Report(dataset.name, _used_checks(found), count(dataset, graph), graph.validation)


def count(dataset: Dataset, graph: Graph) -> tuple[CountCheck, ...]:
    """Return the counts of a graph beside those of Table 1.

    The edges that the paper prints are the entries of the raw neighbour lists, halved: self-loops and
    repeated entries are among them. The graph holds each edge between two different nodes once.
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
            f"{entries:,} entries in the raw neighbour lists, halved",
        ),
        (
            "different edges",
            None,
            graph.num_edges,
            f"what is left without {loops:,} self-loop and {repeated:,} repeated entries",
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
