"""Columns of the table of nodes that say which nodes train, validate and test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bvat.data.readers.classes import Classes
from bvat.data.readers.table import Table, count_note, fault
from bvat.data.splits import ReadOptions, Split
from bvat.errors import shown
from bvat.graph import targets_of

_SPLITS = ("train", "val", "test")


def given_splits(
    table: Table, columns: Mapping[str, Sequence[str]], classes: Classes, notes: list[str]
) -> list[Split]:
    """Return the splits given by the split columns; an only one may be empty."""
    if not any(map(any, columns.values())):
        return []
    empty = next((name for name, words in columns.items() if not any(words)), None)
    if empty is not None:
        raise fault(table, None, empty, "the column is empty: write train, val or test, or remove it")
    told = [notes, *([] for _ in range(1, len(columns)))]  # what holds for the first is enough
    return [
        _given_split(table, name, words, classes, said)
        for said, (name, words) in zip(told, columns.items(), strict=True)
    ]


def _given_split(
    table: Table, column: str, splits: Sequence[str], classes: Classes, notes: list[str]
) -> Split:
    folded = {word: word.casefold() for word in set(splits)}
    words = [folded[word] for word in splits]
    for row, word in enumerate(words):
        if word and word not in _SPLITS:
            problem = (
                f"{shown(splits[row])} is not part of a split: write train, val or test, or leave it empty"
            )
            raise fault(table, row, column, problem)
    parts = np.array(words)
    known = targets_of(classes.labels).known(classes.labels)
    for name in ("train", "val"):
        missing = np.flatnonzero((parts == name) & ~known)
        if missing.size:
            problem = f"the node is in {name} but has no label: label it, or leave the cell empty"
            raise fault(table, int(missing[0]), column, problem)
    count_note(notes, (parts == "test") & ~known, "test nodes without a label, predicted but not evaluated")
    count_note(notes, (parts == "") & known, "labelled nodes outside the split, whose labels are not used")
    train, val, test = (np.flatnonzero((parts == name) & known) for name in _SPLITS)
    if not train.size:
        raise fault(table, None, column, "there are no training nodes: write train for some labelled nodes")
    return Split(train, val, test, f"given by the {column} column of {table.path.name}")


def note_split(table: Table, splits: Sequence[Split], options: ReadOptions, notes: list[str]) -> None:
    if splits and options.chooses_split:
        notes.append(f"the split column of {table.path.name} is used; split options are ignored")
