"""Tables in files, read block by block: what CSV and Parquet have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bvat.errors import GraphError

LARGEST = 1e30
"""Numbers beyond this would overflow when rows of float32 are summed or squared weights are taken."""
ENDINGS = (".csv", ".csv.gz", ".parquet")
"""File endings of tables."""


@dataclass(frozen=True)
class Block:
    """Some rows of a table.

    Shapes: each of ``texts`` has one entry a row; numbers float64 (rows, columns asked for).
    """

    start: int
    """Number of the first row, from 0."""
    texts: dict[str, Sequence[str]]
    numbers: NDArray[np.float64]


class Table(Protocol):
    """A table in a file."""

    path: Path
    names: tuple[str, ...]
    """Column names."""

    def blocks(self, texts: Sequence[str], numbers: Sequence[str]) -> Iterator[Block]:
        """Yield the rows of the named columns; GraphError at a row that cannot be read."""

    def place(self, row: int) -> str:
        """Return where a row is, in words: ``line 12``."""


def fault(table: Table, row: int | None, column: str | None, problem: str) -> GraphError:
    """Return the error for a place in a table; ``problem`` includes the remedy."""
    where = [str(table.path)]
    if row is not None:
        where.append(table.place(row))
    if column is not None:
        where.append(f"column {column!r}")
    return GraphError(f"{', '.join(where)}: {problem}")


def shown(value: Any, width: int = 40) -> str:
    """Return a value for a message, cut when it is long."""
    text = repr(value)
    return text if len(text) <= width else f"{text[: width - 4]}...{text[0]}"


def number_problem(value: str, column: str) -> str | None:
    """Return what is wrong with the text of a number, None when it is a usable one."""
    try:
        number = float(value) if "_" not in value else None
    except ValueError:
        number = None
    if number is not None and abs(number) <= LARGEST:
        return None
    if not value.strip():
        return "the cell is empty: write a number (0 if there is none), or remove the column"
    if number is None:
        return f"{shown(value)} is not a number: write one, remove the column, or use it with --text {column}"
    if np.isfinite(number):
        return f"{shown(value)} is beyond {LARGEST:g}: use another unit for the column"
    return f"{shown(value)} is not a finite number: fill it in or remove the row"


def open_table(path: Path) -> Table:
    """Return the table in a CSV or Parquet file, with its column names checked."""
    table: Table
    if path.name.lower().endswith(".parquet"):
        from bvat.data.readers.parquet_table import ParquetTable

        table = ParquetTable(path)
    else:
        from bvat.data.readers.csv_table import CsvTable

        table = CsvTable(path)
    for k, name in enumerate(table.names):
        if not name:
            raise fault(
                table, None, None, f"column {k + 1} has no name: name it in the first line or remove it"
            )
        if name in table.names[:k]:
            raise fault(table, None, name, "two columns have this name: rename or remove one")
    return table


def find_column(table: Table, wanted: str) -> str | None:
    """Return the column of that name, whatever its case, None when there is none."""
    if wanted in table.names:
        return wanted
    return next((name for name in table.names if name.casefold() == wanted), None)


def require_columns(table: Table, *wanted: str) -> list[str]:
    """Return the columns of these names; GraphError when one is missing."""
    found = [find_column(table, name) for name in wanted]
    missing = [name for name, hit in zip(wanted, found, strict=True) if hit is None]
    if missing:
        there = ", ".join(shown(name) for name in table.names[:6])
        hint = ""
        if len(table.names) == 1 and (";" in table.names[0] or "\t" in table.names[0]):
            hint = " (are they separated by semicolons or tabs? save them with commas)"
        raise fault(
            table,
            None,
            None,
            f"there is no column {missing[0]!r}, only {there}{hint}: add it to the first line",
        )
    return [name for name in found if name is not None]
