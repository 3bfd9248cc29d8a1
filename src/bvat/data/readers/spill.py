"""Edges that are sorted on disk: of a file of any length, some rows of A are in memory at a time.

:func:`spill_edges` reads the table once and counts the edges of each node. They are then written into a file
per range of nodes, so that the ranges have about the same number of edges, and the ranges are merged one
after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
    """The edges of a table as numbers of nodes, in files, without self-loops and edges of weight 0."""

    folder: Path
    nodes: int
    edges: int
    weighted: bool
    bounds: NDArray[np.int64]
    """The first node of each range, and N."""
    loops: int
    zeros: int


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
    start = edges = loops = zeros = 0
    with (folder / "pairs").open("wb") as pairs, (folder / "weights").open("wb") as weights:
        for batch in table.batches((), ends if weight is None else [*ends, weight], cells=ENTRIES):
            pair = np.stack([find_rows(batch, name, start) for name in ends], axis=1).astype(np.int32)
            kept = np.ones(len(pair), np.bool_)
            if weight is not None:
                found = checked_weights(table, start, weight, table.numbers(batch, weight, start))
                kept = found > 0
            zeros += int((~kept).sum())
            loop = pair[:, 0] == pair[:, 1]
            loops += int((loop & kept).sum())
            kept &= ~loop
            pair = pair[kept]
            pairs.write(pair.data)
            if weight is not None:
                weights.write(found[kept].data)
            counts += np.bincount(pair.ravel() >> shift, minlength=counts.size)
            start, edges = start + batch.num_rows, edges + len(pair)
            tell("read", start / max(1, table.rows))
    ranges = -(-2 * edges // ENTRIES)
    wanted = np.arange(1, ranges) * (2 * edges / max(1, ranges))
    inner = (np.searchsorted(np.cumsum(counts), wanted) + 1) << shift
    bounds = np.unique(np.r_[0, np.minimum(inner, nodes), nodes])
    return _Spilled(folder, nodes, edges, weight is not None, bounds, loops, zeros)


def _blocks(path: Path, dtype: Any, width: int) -> Iterator[NDArray[Any]]:
    with path.open("rb") as file:
        while (block := np.fromfile(file, dtype, ENTRIES * width)).size:
            yield block


def _distribute(spilled: _Spilled, tell: Tell) -> None:
    """Write each edge (i, j) as the number i N + j to the range of i, and turned round to that of j."""
    folder, nodes = spilled.folder, spilled.nodes
    weights = _blocks(folder / "weights", np.float64, 1)
    done = 0
    for block in _blocks(folder / "pairs", np.int32, 2):
        pair = block.reshape(-1, 2).astype(np.int64)
        weight = next(weights) if spilled.weighted else None
        for way, (row, col) in (("given", pair.T), ("opposite", pair.T[::-1])):
            key = row * nodes + col
            if weight is not None:
                order = np.argsort(key)
                key, sorted_weight = key[order], weight[order]
            else:
                key.sort()
            places = np.searchsorted(key, spilled.bounds * nodes)
            for number, (start, end) in enumerate(pairwise(places)):
                _append(folder / f"{way}-{number}", key[start:end])
                if weight is not None:
                    _append(folder / f"{way}-{number}-weights", sorted_weight[start:end])
        done += len(pair)
        tell("sort", done / spilled.edges)
    for name in ("pairs", "weights"):
        (folder / name).unlink()


def _append(path: Path, content: NDArray[Any]) -> None:
    with path.open("ab") as file:
        file.write(content.data)


def _merge(spilled: _Spilled, number: int) -> tuple[Any, dict[str, int]]:
    """Return a range of rows of A, CSR (rows, N) in float32, and how many edges were merged."""
    parts: list[NDArray[Any]] = []
    for way in ("given", "opposite"):
        path = spilled.folder / f"{way}-{number}"
        key = _taken(path, np.int64)
        weights = path.with_name(f"{path.name}-weights")
        parts += [key, _taken(weights, np.float64) if spilled.weighted else np.ones(key.size)]
    key, kept, counts = merge_directions(*parts)
    start, end = spilled.bounds[number : number + 2]
    pointers = np.searchsorted(key, np.arange(start, end + 1) * spilled.nodes)
    return (
        sp.csr_array(
            (kept.astype(np.float32), key % spilled.nodes, pointers), shape=(end - start, spilled.nodes)
        ),
        counts,
    )


def _taken(path: Path, dtype: Any) -> NDArray[Any]:
    """Return the content of a file, and remove it."""
    found = np.fromfile(path, dtype) if path.exists() else np.zeros(0, dtype)
    path.unlink(missing_ok=True)
    return found


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
