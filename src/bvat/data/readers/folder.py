"""Read tables of nodes and edges (``.csv``, ``.csv.gz``, ``.parquet``), in a folder or of nodes alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bvat.data.readers import features as make
from bvat.data.readers.assemble import assemble
from bvat.data.readers.classes import Classes, number_classes, number_label_sets, require_classes
from bvat.data.readers.csv_table import CsvTable
from bvat.data.readers.edges import read_edges
from bvat.data.readers.parquet_table import ParquetTable
from bvat.data.readers.split_column import given_splits, note_split
from bvat.data.readers.table import (
    ID_NAME,
    Table,
    fault,
    find_column,
    is_id,
    require_columns,
    some_columns,
)
from bvat.data.splits import ReadOptions
from bvat.errors import GraphError, shown
from bvat.graph import UNKNOWN, Graph
from bvat.graph.targets import SEVERAL_LABELS

ENDINGS = (".csv", ".csv.gz", ".parquet")
"""File endings of tables."""
SEVERAL = SEVERAL_LABELS.name
"""The column of nodes that have several labels; with one class per node it is called ``label``."""
_ONE_OF_SEVERAL = re.compile(r"(?i)split[_ ]?\d+")
"""Names of columns when there are several splits."""


class Nodes(NamedTuple):
    """The columns of the nodes file: lists of N ids, labels, ..., and blocks of the numeric columns."""

    ids: list[str]
    labels: list[str]
    splits: dict[str, list[str]]
    """By the name of their column."""
    texts: list[str]
    blocks: list[Any]
    numbers: dict[str, list[NDArray[np.float64]]]
    """Of columns that are called like ids."""


def is_graph_folder(folder: Path) -> bool:
    return any((folder / f"{stem}{ending}").is_file() for stem in ("nodes", "edges") for ending in ENDINGS)


def read_folder(folder: Path, options: ReadOptions, like: Mapping[str, Any] | None = None) -> Graph:
    """Return the graph in a folder.

    It contains ``nodes.csv`` (``id``, ``label`` which may be empty, or ``labels`` separated by ``|``,
    optionally ``split``, numbers), optionally ``edges.csv`` (``source``, ``target``, optionally ``weight``
    and numbers), and optionally ``features.npz`` or ``features.npy`` with one row per row of the nodes file.
    Without edges, no ids are needed.
    """
    nodes, edges = _find(folder, "nodes"), _find(folder, "edges", required=False)
    return _read(folder.resolve().name, (nodes, edges, make.find_matrix(folder)), options, like)


def read_table(path: Path, options: ReadOptions, like: Mapping[str, Any] | None = None) -> Graph:
    """Return the graph without edges whose nodes are the rows of a table."""
    return _read(path.name.split(".")[0] or path.name, (path, None, None), options, like)


def read_matrix(path: Path, options: ReadOptions, like: Mapping[str, Any] | None = None) -> Graph:
    """Return the graph without edges whose features are a matrix; ``labels.csv`` beside it has the labels.

    Rows that are only to be predicted (``like``) need no labels.
    """
    labels = _find(path.parent, "labels", required=like is None)
    if labels is not None or like is None:
        return _read(path.stem, (labels, None, path), options, like)
    (features,) = make.stored_features(path, None, str(path), like)
    classes = Classes.unknown(features.matrix.shape[0], like)
    return assemble(name=path.stem, classes=classes, features=features, options=options, like=like)


def _read(
    name: str,
    files: tuple[Any, Path | None, Path | None],
    options: ReadOptions,
    like: Mapping[str, Any] | None,
) -> Graph:
    """Return the graph in the files of nodes, edges and a feature matrix; the last two may be missing."""
    node_table, edge_table = open_table(files[0]), open_table(files[1]) if files[1] is not None else None
    text = options.text if like is None else like.get("text", {}).get("column")
    notes: list[str] = []
    special = special_columns(node_table, text, ids=edge_table is not None, labels=like is None)
    numeric = [column for column in node_table.names if column not in special.values()]
    if like is not None:
        numeric = _model_columns(node_table, numeric, like, notes)
    if edge_table is not None:
        require_columns(edge_table, "source", "target")
    nodes = read_nodes(node_table, special, numeric)
    index = _number_nodes(node_table, nodes.ids)
    classes = read_classes(node_table, nodes.labels, like)
    splits = given_splits(node_table, nodes.splits, classes, notes)
    known = like if options.edge_attr else {}  # of no attributes
    edges = None if edge_table is None else read_edges(edge_table, index, node_table, notes, known)
    note_split(node_table, splits, options, notes)
    where = str(node_table.path)
    parts = column_part(nodes, numeric, where, like, notes)
    if text is not None:
        parts.append(make.text_features(nodes.texts, text, where, like))
    parts += make.stored_features(files[2], len(nodes.labels), where, like)
    return assemble(
        name=name,
        classes=classes,
        edges=edges,
        features=make.joined(parts) if parts else None,
        splits=splits,
        options=options,
        node_names=nodes.ids or None,
        notes=notes,
        like=like,
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


def _find(folder: Path, stem: str, *, required: bool = True) -> Path | None:
    found = [path for ending in ENDINGS if (path := folder / f"{stem}{ending}").is_file()]
    if not found and required:
        columns = "columns id and label" if stem == "nodes" else "column label"
        raise GraphError(f"{folder} has no {stem}.csv: add it, with the {columns}")
    if len(found) > 1:
        raise GraphError(f"{folder} has both {found[0].name} and {found[1].name}: keep one of them")
    return found[0] if found else None


def called_like_ids(columns: Sequence[str]) -> list[str]:
    return [name for name in columns if ID_NAME.search(name)]


def special_columns(table: Table, text: str | None, *, ids: bool, labels: bool) -> dict[str, str | None]:
    """Return the columns with a meaning of their own, None for those that are missing and not needed."""
    several = find_column(table, "label") is None and find_column(table, SEVERAL) is not None
    require_columns(table, *["id"] * ids, *["label"] * (labels and not several))
    special = {name: find_column(table, name) for name in ("id", "label", "split")}
    special["label"] = special["label"] or find_column(table, SEVERAL)
    special |= {name: name for name in table.names if _ONE_OF_SEVERAL.fullmatch(name)}
    if text is not None and text not in table.names:
        problem = f"there is no column {text!r} for --text, only {some_columns(table)}: choose one of these"
        raise fault(table, None, None, problem)
    if text is not None and text in special.values():
        raise fault(table, None, text, "this column has a different meaning: choose another one with --text")
    return special | {"text": text}


def _model_columns(table: Table, numeric: list[str], like: Mapping[str, Any], notes: list[str]) -> list[str]:
    """Return the columns that the model needs; raise GraphError unless these are the columns of the table."""
    if "one_hot" in like:
        raise GraphError(
            f"{table.path}: the model was trained with one feature per node (one-hot), which does not carry "
            "over to other graphs: train with features, or on this graph"
        )
    wanted = list(like.get("columns", {}).get("names", ()))
    known, given = set(wanted), set(numeric)
    ids = [name for name in called_like_ids(numeric) if name not in known]
    notes += [f"column {shown(name)} is not used: the model was trained without it" for name in ids]
    numeric = [name for name in numeric if name not in ids]
    for name in [*wanted, *numeric]:
        if name not in given:
            raise fault(table, None, name, "the model was trained with this column: add it")
        if name not in known:
            raise fault(table, None, name, "the model was trained without this column: remove it")
    return wanted


def read_nodes(table: Table, special: Mapping[str, str | None], numeric: Sequence[str]) -> Nodes:
    own = ("id", "label", "text")
    lists: dict[str, list[str]] = {name: [] for name in (*own, *special)}
    blocks: list[Any] = []
    numbers: dict[str, list[NDArray[np.float64]]] = {name: [] for name in called_like_ids(numeric)}
    once: dict[str, str] = {}  # rows without ids can be many, with equal labels
    for block in table.blocks([name for name in special.values() if name is not None], numeric):
        cells = {name: block.texts[column] for name, column in special.items() if column is not None}
        for name, values in cells.items():
            short = (value.strip() for value in values)
            lists[name] += (once.setdefault(v, v) for v in short) if name not in ("id", "text") else values
        blocks.append(make.fastest_layout(block.numbers.astype(np.float32)))
        for name, found in numbers.items():
            found.append(block.numbers[:, numeric.index(name)])
        if len(set(cells.get("id", ()))) < len(cells.get("id", ())):
            break  # reported by _number_nodes; a file that only repeats itself is not read to its end
    if not (rows := sum(block.shape[0] for block in blocks)):
        raise fault(table, None, None, "there are no rows after the column names: add a row for each node")
    splits = {column: lists[name] for name, column in special.items() if column and name not in own}
    return Nodes(lists["id"], lists["label"] or [""] * rows, splits, lists["text"], blocks, numbers)


def _number_nodes(table: Table, ids: Sequence[str]) -> dict[str, int]:
    """Return id -> row; raise GraphError at an empty or repeated id."""
    if "" in ids:
        raise empty_id(table, ids.index(""))
    index: dict[str, int] = {}
    for row, name in enumerate(ids):
        if (first := index.setdefault(name, row)) != row:
            raise repeated_id(table, row, name, first)
    return index


def read_classes(table: Table, labels: Sequence[str], like: Mapping[str, Any] | None) -> Classes:
    column = find_column(table, "label") or find_column(table, SEVERAL)
    several = column is not None and column.casefold() == SEVERAL
    if like is None:
        classes = number_label_sets(labels) if several else number_classes(labels)
        require_classes(classes, f"{table.path}, column {column!r}")
        return classes
    if several or like.get("targets") == SEVERAL:
        try:
            return number_label_sets(labels if several else [""] * len(labels), like["classes"])
        except KeyError as unknown:
            row = next(k for k, cell in enumerate(labels) if unknown.args[0] in cell)
            problem = (
                f"the model does not know label {shown(unknown.args[0])}: remove it, or train on this graph"
            )
            raise fault(table, row, column, problem) from None
    number = {str(name): k for k, name in enumerate(like["classes"])} | {"": UNKNOWN}
    for row, label in enumerate(labels):
        if label not in number:
            problem = f"the model does not know class {shown(label)}: leave it empty, or train on this graph"
            raise fault(table, row, column, problem)
    return Classes(np.array([number[label] for label in labels], dtype=np.int64), tuple(like["classes"]))


def find_ids(nodes: Nodes, notes: list[str]) -> list[str]:
    """Return the numeric columns that look like ids."""
    ids = [name for name, values in nodes.numbers.items() if is_id(values)]
    notes += [
        f"column {shown(name)} is left out because it looks like an id (whole numbers that hardly ever "
        "repeat): rename it to use it as a feature"
        for name in ids
    ]
    return ids


def column_part(
    nodes: Nodes, numeric: list[str], where: str, like: Mapping[str, Any] | None, notes: list[str]
) -> list[make.Features]:
    """Return the features in the numeric columns, if there are any; columns of ids are left out."""
    ids = [] if like is not None else find_ids(nodes, notes)
    kept = [name for name in numeric if name not in ids]
    if not kept:
        return []
    matrix = make.stacked(nodes.blocks)
    if ids:
        matrix = make.fastest_layout(matrix[:, [numeric.index(name) for name in kept]])
    return [make.column_features(kept, matrix, where, like)]


def repeated_id(table: Table, row: int, given: str, first: int) -> GraphError:
    problem = f"{shown(given)} is already the id of {table.place(first)}: give each node its own"
    return fault(table, row, find_column(table, "id"), problem)


def empty_id(table: Table, row: int) -> GraphError:
    return fault(table, row, find_column(table, "id"), "the id is empty: give each node an id")
