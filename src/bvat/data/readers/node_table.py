"""The table of nodes: its columns, the ids, the classes and the splits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bvat.data.readers.classes import (
    Classes,
    number_classes,
    number_label_sets,
    require_classes,
    split_labels,
)
from bvat.data.readers.features import fastest_layout
from bvat.data.readers.table import (
    ID_NAME,
    Table,
    count_note,
    fault,
    find_column,
    is_id,
    require_columns,
    some_columns,
)
from bvat.data.splits import PARTS, ReadOptions, Split
from bvat.errors import GraphError, shown
from bvat.graph import targets_of
from bvat.graph.targets import SEVERAL_LABELS

SEVERAL = SEVERAL_LABELS.name
"""The column of nodes that have several labels; with one class per node it is called ``label``."""
_ONE_OF_SEVERAL = re.compile(r"(?i)split[_ ]?\d+")
"""Names of columns when there are several splits."""


class Columns(NamedTuple):
    """The columns of the table of nodes by their meaning; None for those that are missing."""

    id: str | None
    label: str | None
    splits: tuple[str, ...]
    text: str | None
    numeric: tuple[str, ...]
    """All others: features."""

    @property
    def several(self) -> bool:
        """Whether nodes have several labels."""
        return self.label is not None and self.label.casefold() == SEVERAL

    @property
    def called_like_ids(self) -> tuple[str, ...]:
        return tuple(name for name in self.numeric if ID_NAME.search(name))


class Nodes(NamedTuple):
    """What the columns hold: lists of N ids, labels, ..., and blocks of the numeric columns."""

    ids: list[str]
    labels: list[str]
    splits: dict[str, list[str]]
    """By the name of their column."""
    texts: list[str]
    blocks: list[Any]
    numbers: dict[str, list[NDArray[np.float64]]]
    """Of columns that are called like ids."""


def find_columns(table: Table, options: ReadOptions, *, ids: bool) -> Columns:
    """Return the columns; GraphError if the labels, the text, or the ``ids`` that edges need are missing."""
    like = options.like
    text = options.text if like is None else like.get("text", {}).get("column")
    label = find_column(table, "label") or find_column(table, SEVERAL)
    require_columns(table, *["id"] * ids, *["label"] * (like is None and label is None))
    split = find_column(table, "split")
    splits = [] if split is None else [split]
    splits += [name for name in table.names if _ONE_OF_SEVERAL.fullmatch(name)]
    own = (find_column(table, "id"), label, *splits)
    if text is not None and text not in table.names:
        problem = f"there is no column {text!r} for --text, only {some_columns(table)}: choose one of these"
        raise fault(table, None, None, problem)
    if text is not None and text in own:
        raise fault(table, None, text, "this column has a different meaning: choose another one with --text")
    numeric = tuple(name for name in table.names if name not in (*own, text))
    return Columns(own[0], label, tuple(splits), text, numeric)


def model_columns(table: Table, columns: Columns, like: Mapping[str, Any], notes: list[str]) -> Columns:
    """Return the features that the model needs; GraphError unless these are the columns of the table."""
    if "one_hot" in like:
        raise GraphError(
            f"{table.path}: the model was trained with one feature per node (one-hot), which does not carry "
            "over to other graphs: train with features, or on this graph"
        )
    wanted = tuple(like.get("columns", {}).get("names", ()))
    known, given = set(wanted), set(columns.numeric)
    ids = [name for name in columns.called_like_ids if name not in known]
    notes += [f"column {shown(name)} is not used: the model was trained without it" for name in ids]
    for name in [*wanted, *(name for name in columns.numeric if name not in ids)]:
        if name not in given:
            raise fault(table, None, name, "the model was trained with this column: add it")
        if name not in known:
            raise fault(table, None, name, "the model was trained without this column: remove it")
    return columns._replace(numeric=wanted)


def read_nodes(table: Table, columns: Columns) -> Nodes:
    named = (columns.id, columns.label, *columns.splits, columns.text)
    lists: dict[str | None, list[str]] = {name: [] for name in named if name is not None}
    blocks: list[Any] = []
    numbers: dict[str, list[NDArray[np.float64]]] = {name: [] for name in columns.called_like_ids}
    once: dict[str, str] = {}  # rows without ids can be many, with equal labels
    for block in table.blocks([name for name in named if name is not None], columns.numeric):
        for name, cells in block.texts.items():
            as_given = name in (columns.id, columns.text)
            short = () if as_given else (cell.strip() for cell in cells)
            lists[name] += cells if as_given else [once.setdefault(cell, cell) for cell in short]
        blocks.append(fastest_layout(block.numbers.astype(np.float32)))
        for name, found in numbers.items():
            found.append(block.numbers[:, columns.numeric.index(name)])
        if columns.id is not None and len(set(block.texts[columns.id])) < len(block.texts[columns.id]):
            break  # reported by number_nodes; a file that only repeats itself is not read to its end
    if not (rows := sum(block.shape[0] for block in blocks)):
        raise fault(table, None, None, "there are no rows after the column names: add a row for each node")
    splits = {name: lists[name] for name in columns.splits}
    labels = lists.get(columns.label, [""] * rows)
    return Nodes(lists.get(columns.id, []), labels, splits, lists.get(columns.text, []), blocks, numbers)


def number_nodes(table: Table, ids: Sequence[str]) -> dict[str, int]:
    """Return id -> row; raise GraphError at an empty or repeated id."""
    if "" in ids:
        raise empty_id(table, ids.index(""))
    index: dict[str, int] = {}
    for row, name in enumerate(ids):
        if (first := index.setdefault(name, row)) != row:
            raise repeated_id(table, row, name, first)
    return index


def repeated_id(table: Table, row: int, given: str, first: int) -> GraphError:
    problem = f"{shown(given)} is already the id of {table.place(first)}: give each node its own"
    return fault(table, row, find_column(table, "id"), problem)


def empty_id(table: Table, row: int) -> GraphError:
    return fault(table, row, find_column(table, "id"), "the id is empty: give each node an id")


def unknown_id(table: Table, row: int, column: str, given: str, nodes: Table) -> GraphError:
    problem = f"is not an id in {nodes.path.name}: add the node there or remove the edge"
    return fault(table, row, column, f"{shown(given)} {problem}")


def find_ids(nodes: Nodes, notes: list[str]) -> list[str]:
    """Return the numeric columns that look like ids."""
    ids = [name for name, values in nodes.numbers.items() if is_id(values)]
    notes += [
        f"column {shown(name)} is left out because it looks like an id (whole numbers that hardly ever "
        "repeat): rename it to use it as a feature"
        for name in ids
    ]
    return ids


def read_classes(
    table: Table, columns: Columns, labels: Sequence[str], like: Mapping[str, Any] | None
) -> Classes:
    """Return the classes of the nodes, with ``like`` those of a model, which must know all labels."""
    several = columns.several or (like is not None and like.get("targets") == SEVERAL)
    number = number_label_sets if several else number_classes
    if like is None:
        classes = number(labels)
        require_classes(classes, f"{table.path}, column {columns.label!r}")
        return classes
    try:
        return number(labels if several == columns.several else [""] * len(labels), like["classes"])
    except KeyError as unknown:
        name = unknown.args[0]
        row = next(k for k, cell in enumerate(labels) if name in (split_labels(cell) if several else [cell]))
        what, remedy = ("label", "remove it") if several else ("class", "leave it empty")
        problem = f"the model does not know {what} {shown(name)}: {remedy}, or train on this graph"
        raise fault(table, row, columns.label, problem) from None


def read_splits(
    table: Table, columns: Mapping[str, Sequence[str]], classes: Classes, notes: list[str]
) -> list[Split]:
    """Return the splits given by the split columns; an only one may be empty."""
    found: list[Split] = []
    for name, words in columns.items() if any(map(any, columns.values())) else ():
        if not any(words):
            raise fault(table, None, name, "the column is empty: write train, val or test, or remove it")
        told = [] if found else notes  # what holds for the first is enough
        found.append(_read_split(table, name, words, classes, told))
    return found


def _read_split(table: Table, column: str, words: Sequence[str], classes: Classes, notes: list[str]) -> Split:
    folded = {word: word.casefold() for word in set(words)}
    parts = np.array([folded[word] for word in words])
    for row in np.flatnonzero(~np.isin(parts, ("", *PARTS))).tolist():
        problem = f"{shown(words[row])} is not part of a split: write train, val or test, or leave it empty"
        raise fault(table, row, column, problem)
    known = targets_of(classes.labels).known(classes.labels)
    for row in np.flatnonzero(np.isin(parts, ("train", "val")) & ~known).tolist():
        problem = f"the node is in {parts[row]} but has no label: label it, or leave the cell empty"
        raise fault(table, row, column, problem)
    count_note(notes, (parts == "test") & ~known, "test nodes without a label, predicted but not evaluated")
    count_note(notes, (parts == "") & known, "labelled nodes outside the split, whose labels are not used")
    train, val, test = (np.flatnonzero((parts == name) & known) for name in PARTS)
    if not train.size:
        raise fault(table, None, column, "there are no training nodes: write train for some labelled nodes")
    return Split(train, val, test, f"given by the {column} column of {table.path.name}")


def note_split(table: Table, splits: Sequence[Split], options: ReadOptions, notes: list[str]) -> None:
    if splits and options.chooses_split:
        notes.append(f"the split column of {table.path.name} is used; split options are ignored")
