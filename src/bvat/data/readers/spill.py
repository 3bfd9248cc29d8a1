"""Edges that are sorted on disk: of a file of any length, some rows of A are in memory at a time.

:func:`spill_edges` reads the table once and counts the edges of each node. They are then written into a file
per range of nodes, so that the ranges have about the same number of edges, and the ranges are merged one
after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from bvat.data.readers.edges import checked_weights
from bvat.data.readers.parquet_table import ParquetTable
from bvat.data.readers.table import find_column, require_columns
from bvat.engine.compile import Compiled
from bvat.engine.sparse import SparseMatrix, SymmetricMatrix
from bvat.graph.repair import merge_directions

ENTRIES = 2**22
"""Edges that are read, or entries of A that are merged, at once."""
_BINS = 2**16
"""Ranges of nodes whose edges are counted."""

Tell = Callable[[str, float], None]
"""Is told the stage and the share of it that is done."""
FindRows = Callable[[Any, str, int], NDArray[Any]]
"""From a batch, the name of a column of ids and the number of the first row to the numbers of the nodes."""


def in_file(path: Path, blocks: Iterable[NDArray[Any]]) -> NDArray[Any]:
    """Write blocks below each other; return the array, memory-mapped."""
    rows, block = 0, np.zeros((0, 0), dtype=np.float32)
    with path.open("wb") as file:
        for block in blocks:
            file.write(np.ascontiguousarray(block).data)
            rows += len(block)
    return mapped(path, block.dtype, (rows, *block.shape[1:]))


def mapped(path: Path, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the array in a file; nothing that is written to it reaches the file."""
    return np.memmap(path, dtype, "c", shape=shape) if np.prod(shape) else np.zeros(shape, dtype)


class _Spilled(NamedTuple):
    """The edges of a table as records in a file, without self-loops and edges of weight 0."""

    folder: Path
    nodes: int
    edges: int
    weighted: bool
    bounds: NDArray[np.int64]
    """The first node of each range, and N."""
    loops: int
    zeros: int

    def record(self, *key: Any) -> Any:
        """Return the type of a record: the key, and the weight if edges have one."""
        return np.dtype([("key", *key), *[("weight", np.float64)] * self.weighted])


class Edges(NamedTuple):
    """The edges of a graph, on disk."""

    adjacency: SymmetricMatrix
    propagation: SymmetricMatrix
    repairs: dict[str, int]
    zeros: int
    """Edges of weight 0."""


def read_edges(table: ParquetTable, find_rows: FindRows, nodes: int, folder: Path, tell: Tell) -> Edges:
    """Return A and Â of a table of edges.

    Args:
        table: with the columns ``source``, ``target`` and optionally ``weight``.
        find_rows: finds the nodes with these ids.
        nodes: N.
        folder: an empty folder for files that have to stay as long as the result is used.
        tell: is told how far the work is.
    """
    spilled = _read(table, find_rows, nodes, folder, tell)
    _distribute(spilled, tell)
    counts, sums, repairs = np.zeros(nodes, np.int64), np.ones(nodes), {"self_loops": spilled.loops}
    columns, weights = folder / "columns", folder / "values"
    with columns.open("wb") as col, weights.open("wb") as values:
        for number, (start, end) in enumerate(pairwise(spilled.bounds)):
            rows, merged = _merge(spilled, number)
            col.write(rows.indices.astype(np.int32).data)
            if spilled.weighted:
                values.write(rows.data.data)
            counts[start:end] = np.diff(rows.indptr)
            loops = sp.eye_array(end - start, nodes, k=start, format="csr")
            sums[start:end] = (rows + loops).sum(axis=1)
            repairs |= {name: repairs.get(name, 0) + count for name, count in merged.items()}
            tell("merge", end / nodes)
    entries = int(counts.sum())
    crow = np.zeros(nodes + 1, np.int32 if entries < 2**31 else np.int64)
    np.cumsum(counts, out=crow[1:])
    ones = torch.ones(1).expand(entries)
    adjacency = SymmetricMatrix(
        torch.from_numpy(crow),
        torch.from_numpy(mapped(columns, np.int32, (entries,))),
        torch.from_numpy(mapped(weights, np.float32, (entries,))) if spilled.weighted else ones,
        (nodes, nodes),
    )
    return Edges(adjacency, _Normalised(adjacency, 1.0 / np.sqrt(sums)), repairs, spilled.zeros)


def _read(table: ParquetTable, find_rows: FindRows, nodes: int, folder: Path, tell: Tell) -> _Spilled:
    """Write the edges as pairs of int32, and their weights, and count them."""
    ends, weight = require_columns(table, "source", "target"), find_column(table, "weight")
    shift = max(0, nodes.bit_length() - _BINS.bit_length() + 1)
    counts = np.zeros((nodes >> shift) + 1, np.int64)
    spilled = _Spilled(folder, nodes, 0, weight is not None, counts, 0, 0)
    start = edges = loops = zeros = 0
    with (folder / "edges").open("wb") as file:
        for batch in table.batches((), ends if weight is None else [*ends, weight], cells=ENTRIES):
            records = np.empty(batch.num_rows, spilled.record(np.int32, 2))
            pair = records["key"]
            pair[:] = np.stack([find_rows(batch, name, start) for name in ends], axis=1)
            kept = np.ones(len(pair), np.bool_)
            if weight is not None:
                found = checked_weights(table, start, weight, table.numbers(batch, weight, start))
                records["weight"], kept = found, found > 0
            zeros += int((~kept).sum())
            loop = pair[:, 0] == pair[:, 1]
            loops += int((loop & kept).sum())
            records = records[kept & ~loop]
            file.write(records.data)
            counts += np.bincount(records["key"].ravel() >> shift, minlength=counts.size)
            start, edges = start + batch.num_rows, edges + len(records)
            tell("read", start / max(1, table.rows))
    ranges = -(-2 * edges // ENTRIES)
    wanted = np.arange(1, ranges) * (2 * edges / max(1, ranges))
    inner = (np.searchsorted(np.cumsum(counts), wanted) + 1) << shift
    bounds = np.unique(np.r_[0, np.minimum(inner, nodes), nodes])
    return spilled._replace(edges=edges, bounds=bounds, loops=loops, zeros=zeros)


def _distribute(spilled: _Spilled, tell: Tell) -> None:
    """Write each edge (i, j) as the number i N + j to the range of i, and turned round to that of j."""
    path, done, sizes = spilled.folder / "edges", 0, np.diff(spilled.bounds)
    # there are at most _BINS ranges, and numbers of 16 bits are sorted in linear time
    range_of = np.repeat(np.arange(sizes.size, dtype=np.uint16), sizes)
    with path.open("rb") as file:
        while (block := np.fromfile(file, spilled.record(np.int32, 2), ENTRIES)).size:
            pair = block["key"].T.astype(np.int64)
            for way, (row, col) in (("given", pair), ("opposite", pair[::-1])):
                records = np.empty(block.size, spilled.record(np.int64))
                records["key"] = row * spilled.nodes + col
                if spilled.weighted:
                    records["weight"] = block["weight"]
                number = range_of[row]
                records = records[np.argsort(number, kind="stable")]
                ends = np.cumsum(np.bincount(number, minlength=sizes.size))
                for k, part in enumerate(np.split(records, ends[:-1])):
                    _append(spilled.folder / f"{way}-{k}", part)
            done += block.size
            tell("sort", done / spilled.edges)
    path.unlink()


def _append(path: Path, content: NDArray[Any]) -> None:
    with path.open("ab") as file:
        file.write(content.data)


def _merge(spilled: _Spilled, number: int) -> tuple[Any, dict[str, int]]:
    """Return a range of rows of A, CSR (rows, N) in float32, and how many edges were merged."""
    parts: list[NDArray[Any]] = []
    for way in ("given", "opposite"):
        path, kind = spilled.folder / f"{way}-{number}", spilled.record(np.int64)
        records = np.fromfile(path, kind) if path.exists() else np.zeros(0, kind)
        path.unlink(missing_ok=True)
        parts += [records["key"], records["weight"] if spilled.weighted else np.ones(records.size)]
    key, kept, counts = merge_directions(*parts)
    start, end = spilled.bounds[number : number + 2]
    pointers = np.searchsorted(key, np.arange(start, end + 1) * spilled.nodes)
    content = kept.astype(np.float32), key % spilled.nodes, pointers
    return sp.csr_array(content, shape=(end - start, spilled.nodes)), counts


class _Normalised(SymmetricMatrix):
    """Â = D^-1/2 (A + I) D^-1/2, whose rows are computed when they are selected.

    ``arrays`` are those of A: the entries of Â are where A has some, and on the diagonal.
    """

    def __init__(self, adjacency: SymmetricMatrix, scale: NDArray[np.float64]) -> None:
        super().__init__(adjacency.crow, adjacency.col, adjacency.values, adjacency.shape)
        self._scale = scale

    def select(self, rows: Tensor) -> SparseMatrix:
        crow, col, values = _normalised_rows(*self.arrays, rows.numpy(), self._scale)
        shape = (rows.numel(), self.shape[1])
        return SparseMatrix(torch.from_numpy(crow), torch.from_numpy(col), torch.from_numpy(values), shape)


@Compiled
def _normalised_rows(crow: Any, col: Any, values: Any, rows: Any, scale: Any) -> Any:
    """Return row pointers, columns and entries of rows of Â."""
    most = rows.shape[0]
    for v in rows:
        most += crow[v + 1] - crow[v]
    own_crow = np.zeros(rows.shape[0] + 1, dtype=np.int32)
    own_col = np.empty(most, dtype=np.int32)
    own_values = np.empty(most, dtype=np.float32)
    size = 0
    for i in range(rows.shape[0]):
        v, inside = rows[i], True
        for k in range(crow[v], crow[v + 1] + 1):
            if inside and (k == crow[v + 1] or col[k] > v):
                own_col[size], own_values[size] = v, scale[v] * scale[v]
                size, inside = size + 1, False
            if k < crow[v + 1]:
                own_col[size], own_values[size] = col[k], scale[v] * values[k] * scale[col[k]]
                size += 1
        own_crow[i + 1] = size
    return own_crow, own_col, own_values
