"""Read a folder of Parquet files into a graph whose edges and dense features stay on disk."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from bvat.data.readers import features as make
from bvat.data.readers.assemble import assemble
from bvat.data.readers.edges import note_edges
from bvat.data.readers.folder import open_table
from bvat.data.readers.node_ids import NodeIndex, NodeNames
from bvat.data.readers.node_table import (
    find_columns,
    find_ids,
    note_split,
    read_classes,
    read_nodes,
    read_splits,
)
from bvat.data.readers.parquet_table import ParquetTable
from bvat.data.readers.spill import Tell, in_file, read_edges
from bvat.data.readers.table import fault, require_columns
from bvat.data.splits import ReadOptions
from bvat.errors import GraphError, SettingsError
from bvat.graph import Graph

NODES, EDGES = "nodes.parquet", "edges.parquet"
STAGES = {"nodes": 1.0, "read": 1.0, "sort": 2.0, "merge": 2.0}
"""What :func:`stream_folder` tells the progress of, and how long each takes, roughly."""


@contextmanager
def scratch_folder(beside: Path) -> Iterator[Path]:
    """Make a folder for temporary files beside a path, and remove it at the end, whatever happens."""
    folder = beside.absolute().with_name(f".{beside.name}.{uuid.uuid4().hex[:8]}.scratch")
    folder.mkdir(parents=True)
    try:
        yield folder
    except OSError as error:
        if error.filename is None:  # writing to an open file does not say to which
            error.filename = str(folder)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def stream_folder(
    folder: Path, scratch: Path, options: ReadOptions | None = None, tell: Tell = lambda stage, share: None
) -> Graph:
    """Return the graph that :func:`bvat.load` returns, with edges and dense features in files in ``scratch``.

    Memory grows with the number of nodes, not with that of edges.

    Args:
        folder: has ``nodes.parquet`` and ``edges.parquet``, optionally ``features.npy`` or ``features.npz``.
        scratch: an empty folder that must stay as long as the graph is used.
        options: without ``text``.
        tell: is told how far the work is.
    """
    options = options or ReadOptions()
    nodes, edges = _tables(folder, options)
    columns = find_columns(nodes, options, ids=True)
    require_columns(edges, "source", "target")
    notes: list[str] = []
    found = read_nodes(nodes, columns._replace(id=None, numeric=columns.called_like_ids))
    classes = read_classes(nodes, columns, found.labels, None)
    splits = read_splits(nodes, found.splits, classes, notes)
    notes_of_ids: list[str] = []
    ids = find_ids(found, notes_of_ids)
    del found  # 16 bytes per node
    index = NodeIndex(nodes, edges)
    tell("nodes", 1)
    stored = read_edges(edges, index.find, nodes.rows, scratch, tell)
    note_edges(edges, stored.zeros, notes)
    note_split(nodes, splits, options, notes)
    notes += notes_of_ids
    graph = assemble(
        name=folder.resolve().name,
        classes=classes,
        edges=(stored.adjacency, stored.repairs),
        features=_features(folder, nodes, [name for name in columns.numeric if name not in ids], scratch),
        splits=splits,
        options=options,
        node_names=NodeNames(index.ids),
        notes=notes,
    )
    graph.__dict__["propagation"] = stored.propagation
    return graph


def _tables(folder: Path, options: ReadOptions) -> tuple[ParquetTable, ParquetTable]:
    if options.text is not None:
        raise SettingsError("--stream does not read texts: put features of them into features.npy or .npz")
    if options.directed:
        raise SettingsError("only undirected graphs can be cut into parts: leave out --directed")
    for name in (NODES, EDGES):
        if not (folder / name).is_file():
            raise GraphError(f"{folder} has no {name}, which --stream reads: write the table as Parquet")
    nodes, edges = (cast(ParquetTable, open_table(folder / name)) for name in (NODES, EDGES))
    if nodes.rows >= 2**31:
        raise fault(nodes, None, None, f"{nodes.rows:,} nodes are more than 2^31 - 1: use fewer")
    return nodes, edges


def _features(folder: Path, nodes: ParquetTable, columns: Sequence[str], scratch: Path) -> Any:
    """Return the features of columns and of a file; None if there are neither. Sparse ones are in memory."""
    where, parts, number = str(nodes.path), [], iter(range(4))

    def keep(blocks: Any) -> NDArray[Any]:
        return in_file(scratch / f"features-{next(number)}", blocks)

    if columns:
        raw = keep(block.numbers.astype(np.float32) for block in nodes.blocks([], columns))
        parts.append(make.column_features(columns, make.fastest_layout(raw), where, keep=keep))
    parts += make.stored_features(make.find_matrix(folder), nodes.rows, where, keep=keep)
    return make.joined(parts, keep) if parts else None
