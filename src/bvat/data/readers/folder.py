"""Read tables of nodes and edges (``.csv``, ``.csv.gz``, ``.parquet``), in a folder or of nodes alone."""

from __future__ import annotations

from pathlib import Path

from bvat.data.readers import features as make
from bvat.data.readers.assemble import assemble
from bvat.data.readers.classes import Classes
from bvat.data.readers.csv_table import CsvTable
from bvat.data.readers.edges import read_edges
from bvat.data.readers.node_table import (
    find_columns,
    find_ids,
    model_columns,
    note_split,
    number_nodes,
    read_classes,
    read_nodes,
    read_splits,
)
from bvat.data.readers.parquet_table import ParquetTable
from bvat.data.readers.table import Table, fault, require_columns
from bvat.data.splits import ReadOptions
from bvat.errors import GraphError
from bvat.graph import Graph

ENDINGS = (".csv", ".csv.gz", ".parquet")
"""File endings of tables."""


def is_graph_folder(folder: Path) -> bool:
    return any((folder / f"{stem}{ending}").is_file() for stem in ("nodes", "edges") for ending in ENDINGS)


def read_folder(folder: Path, options: ReadOptions) -> Graph:
    """Return the graph in a folder.

    It contains ``nodes.csv`` (``id``, ``label`` which may be empty, or ``labels`` separated by ``|``,
    optionally ``split``, numbers), optionally ``edges.csv`` (``source``, ``target``, optionally ``weight``
    and numbers), and optionally ``features.npz`` or ``features.npy`` with one row per row of the nodes file.
    Without edges, no ids are needed.
    """
    nodes, edges = _require(folder, "nodes", "columns id and label"), _find(folder, "edges")
    return _read(folder.resolve().name, nodes, edges, make.find_matrix(folder), options)


def read_table(path: Path, options: ReadOptions) -> Graph:
    """Return the graph without edges whose nodes are the rows of a table."""
    return _read(path.name.split(".")[0] or path.name, path, None, None, options)


def read_matrix(path: Path, options: ReadOptions) -> Graph:
    """Return the graph without edges whose features are a matrix; ``labels.csv`` beside it has the labels.

    Rows that are only to be predicted (``options.like``) need no labels.
    """
    if options.like is None or _find(path.parent, "labels") is not None:
        return _read(path.stem, _require(path.parent, "labels", "column label"), None, path, options)
    (features,) = make.stored_features(path, None, str(path), options.like)
    classes = Classes.unknown(features.matrix.shape[0], options.like)
    return assemble(name=path.stem, classes=classes, features=features, options=options)


def _read(name: str, path: Path, edge_path: Path | None, matrix: Path | None, options: ReadOptions) -> Graph:
    """Return the graph in the files of nodes, edges and a feature matrix; the last two may be missing."""
    table, edge_table = open_table(path), None if edge_path is None else open_table(edge_path)
    like, notes = options.like, list[str]()
    columns = find_columns(table, options, ids=edge_table is not None)
    if like is not None:
        columns = model_columns(table, columns, like, notes)
    if edge_table is not None:
        require_columns(edge_table, "source", "target")
    nodes = read_nodes(table, columns)
    index = number_nodes(table, nodes.ids)
    classes = read_classes(table, columns, nodes.labels, like)
    splits = read_splits(table, nodes.splits, classes, notes)
    known = like if options.edge_attr else {}  # of no attributes
    edges = None if edge_table is None else read_edges(edge_table, index, table, notes, known)
    note_split(table, splits, options, notes)
    ids = [] if like is not None else find_ids(nodes, notes)
    parts = []
    if kept := [name for name in columns.numeric if name not in ids]:
        x = make.stacked(nodes.blocks)
        if ids:
            x = make.fastest_layout(x[:, [columns.numeric.index(name) for name in kept]])
        parts.append(make.column_features(kept, x, str(path), like))
    if columns.text is not None:
        parts.append(make.text_features(nodes.texts, columns.text, str(path), like))
    parts += make.stored_features(matrix, len(nodes.labels), str(path), like)
    return assemble(
        name=name,
        classes=classes,
        edges=edges,
        features=make.joined(parts) if parts else None,
        splits=splits,
        options=options,
        node_names=nodes.ids or None,
        notes=notes,
    )


def open_table(path: Path) -> Table:
    """Return the table in a CSV or Parquet file, with its column names checked."""
    kind = ParquetTable if path.name.lower().endswith(".parquet") else CsvTable
    table: Table = kind(path)
    seen: set[str] = set()
    for k, name in enumerate(table.names):
        if not name:
            raise fault(
                table, None, None, f"column {k + 1} has no name: name it in the first line or remove it"
            )
        if name in seen:
            raise fault(table, None, name, "two columns have this name: rename or remove one")
        seen.add(name)
    return table


def _find(folder: Path, stem: str) -> Path | None:
    found = [path for ending in ENDINGS if (path := folder / f"{stem}{ending}").is_file()]
    if len(found) > 1:
        raise GraphError(f"{folder} has both {found[0].name} and {found[1].name}: keep one of them")
    return found[0] if found else None


def _require(folder: Path, stem: str, columns: str) -> Path:
    found = _find(folder, stem)
    if found is None:
        raise GraphError(f"{folder} has no {stem}.csv: add it, with the {columns}")
    return found
