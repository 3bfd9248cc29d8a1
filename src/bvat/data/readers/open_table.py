"""Open a table, whatever its file format."""

from __future__ import annotations

from pathlib import Path

from bvat.data.readers.csv_table import CsvTable
from bvat.data.readers.parquet_table import ParquetTable
from bvat.data.readers.table import Table, fault

ENDINGS = (".csv", ".csv.gz", ".parquet")
"""File endings of tables."""


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
