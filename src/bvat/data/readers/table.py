"""What CSV and Parquet tables have in common: the interface, its blocks of rows, and its error messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bvat.data.npz import MARGIN, RATIO
from bvat.errors import GraphError, shown

EMPTY = "the cell is empty: write a number (0 if there is none), or remove the column"
ID_NAME = re.compile(r"(?i:(^|[\W_])(u|gu|uu)?id)$|[a-z0-9]I[dD]$")
"""Names such as ``facebook_id``, ``uid`` and ``userId``, but not ``paid``."""
SPARE_ROWS, ROWS_PER_BYTE = 1_000_000, 1
"""A compressed table may have ``SPARE_ROWS`` plus ``ROWS_PER_BYTE`` rows per byte of its file. Rows that
differ take more; only rows that repeat for ever, a bomb, take less."""


@dataclass(frozen=True)
class Block:
    """Some rows of a table.

    Shapes: each of ``texts`` has one entry per row; numbers float64 (rows, requested columns).
    """

    start: int
    """Index of the first row."""
    texts: dict[str, Sequence[str]]
    numbers: NDArray[np.float64]


class Table(Protocol):
    """A table in a file."""

    path: Path
    names: tuple[str, ...]
    """Column names."""

    def blocks(self, texts: Sequence[str], numbers: Sequence[str]) -> Iterator[Block]:
        """Yield the rows of the named columns; raise GraphError at a row that cannot be read."""

    def place(self, row: int) -> str:
        """Return the position of a row, such as ``line 12``."""


def fault(table: Table, row: int | None, column: str | None, problem: str) -> GraphError:
    """Return the error for a position in a table; ``problem`` also says how to fix it."""
    line = "" if row is None else f", {table.place(row)}"
    return GraphError(f"{table.path}{line}{'' if column is None else f', column {column!r}'}: {problem}")


def find_column(table: Table, wanted: str) -> str | None:
    """Return the column of that name, ignoring case, or None if there is none."""
    if wanted in table.names:
        return wanted
    return next((name for name in table.names if name.casefold() == wanted), None)


def require_columns(table: Table, *wanted: str) -> list[str]:
    """Return the columns of these names; raise GraphError if one is missing."""
    found = {name: find_column(table, name) for name in wanted}
    missing = [name for name, hit in found.items() if hit is None]
    if missing:
        joined = len(table.names) == 1 and (";" in table.names[0] or "\t" in table.names[0])
        hint = " (are they separated by semicolons or tabs? save them with commas)" if joined else ""
        columns = some_columns(table) + hint
        problem = f"there is no column {missing[0]!r}, only {columns}: add it to the first line"
        raise fault(table, None, None, problem)
    return [name for name in found.values() if name is not None]


def some_columns(table: Table) -> str:
    return ", ".join(shown(name) for name in table.names[:6])


def count_note(notes: list[str], which: NDArray[np.bool_], sentence: str) -> None:
    """Add a sentence with the number of rows (N) that it is about, if there are any."""
    if which.any():
        notes.append(f"{sentence}: {int(which.sum()):,}")


def is_id(numbers: Sequence[NDArray[np.float64]] | None) -> bool:
    """Whether a column with the name of an id holds ids: whole numbers, nearly all different."""
    if not numbers:
        return False
    values = np.concatenate(numbers)  # float64 rounds ids of more than 15 digits: a few may coincide
    return bool((values == np.trunc(values)).all()) and np.unique(values).size > 0.99 * values.size


def text_hint(table: Table, name: str) -> str:
    """Return what else can be done with a column of texts; nothing in a table of edges."""
    return "" if find_column(table, "source") else f", or use it with --text {name}"


def check_rows(table: Table, rows: int) -> None:
    """Raise GraphError if a small file holds so many rows that they must be repetitions."""
    if rows > SPARE_ROWS + ROWS_PER_BYTE * table.path.stat().st_size:
        raise fault(table, None, None, f"over {rows:,} rows in so small a file: write it again")


def check_unpacked(table: Table, size: int) -> None:
    """Raise GraphError if a compressed file holds so many bytes that it must be a bomb."""
    if size > MARGIN + RATIO * table.path.stat().st_size:
        raise fault(table, None, None, "it unpacks to far more than its own size: write it again")
