"""Read Parquet files with pyarrow (the extra ``parquet``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bvat.data.readers.table import LARGEST, Block, check_rows, check_unpacked, fault
from bvat.errors import GraphError

_CELLS = 2**20
"""Cells per block."""


class ParquetTable:
    """A Parquet file; see :class:`bvat.data.readers.table.Table`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            import pyarrow.parquet as parquet
        except ImportError:
            raise GraphError(
                f"{path} needs pyarrow: install bvat[parquet], or save the table as CSV"
            ) from None
        try:
            with parquet.ParquetFile(path) as file:
                fields = list(file.schema_arrow)
                self.names = tuple(field.name.strip() for field in fields)
                self._fields = dict(zip(self.names, fields, strict=True))
                groups = [file.metadata.row_group(k) for k in range(file.metadata.num_row_groups)]
                rows = int(file.metadata.num_rows)
        except Exception as error:  # pyarrow fails in many ways on a damaged file
            raise self._damaged(error) from None
        if not self.names:
            raise fault(self, None, None, "the table has no columns: write it again")
        check_rows(self, rows)
        check_unpacked(self, sum(int(group.total_byte_size) for group in groups))

    def blocks(self, texts: Sequence[str], numbers: Sequence[str]) -> Iterator[Block]:
        """Yield the rows of the named columns; raise GraphError at an invalid value."""
        start = 0
        for batch in self._batches([*texts, *numbers], texts):
            matrix = np.empty((batch.num_rows, len(numbers)), dtype=np.float64)
            for k, name in enumerate(numbers):
                matrix[:, k] = self._numbers(batch, name, start)
            yield Block(start, {name: self._texts(batch, name, start) for name in texts}, matrix)
            start += batch.num_rows

    def _batches(self, wanted: Sequence[str], texts: Sequence[str]) -> Iterator[Any]:
        """Yield batches of rows; texts that repeat are read once, whatever the number of rows."""
        import pyarrow as pa
        import pyarrow.parquet as parquet

        plain = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
        repeated = [self._fields[name].name for name in texts if self._fields[name].type in plain]
        columns = [self._fields[name].name for name in wanted]
        try:
            with parquet.ParquetFile(self.path, read_dictionary=repeated) as file:
                for batch in file.iter_batches(max(1, _CELLS // len(columns)), columns=columns):
                    batch.validate(full=True)  # a damaged file can refer to texts that do not exist
                    if batch.num_rows:
                        yield batch
        except GraphError:
            raise
        except Exception as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> GraphError:
        return GraphError(
            f"{self.path} is not a readable Parquet file ({type(error).__name__}): write it again"
        )

    def place(self, row: int) -> str:
        """Return the row's number, counted from 1."""
        return f"row {row + 1}"

    def _texts(self, batch: Any, name: str, start: int) -> list[str]:
        """Return a column as strings: missing values are empty, integers have no decimal point."""
        import pyarrow as pa

        column = batch.column(self._fields[name].name)
        repeated = pa.types.is_dictionary(column.type)
        try:
            values = (column.dictionary if repeated else column).to_pylist()
        except Exception as error:  # text that is not UTF-8, dates out of range, ...
            raise fault(
                self, None, name, f"cannot be read ({type(error).__name__}): write it as text"
            ) from None
        if not repeated:
            return self._strings(values, name, range(start, start + len(values)))
        places = column.indices.to_pylist()
        first = {k: row for row, k in reversed([*enumerate(places, start)])}
        texts = self._strings(values, name, [first.get(k, start) for k in range(len(values))])
        return ["" if k is None else texts[k] for k in places]

    def _strings(self, values: Sequence[Any], name: str, rows: Sequence[int]) -> list[str]:
        """Return values as strings; ``rows`` are where they stand, for error messages."""
        texts = []
        for row, value in zip(rows, values, strict=True):
            if isinstance(value, float):
                value = None if value != value else int(value) if value.is_integer() else value
            elif isinstance(value, bytes):
                try:
                    value = value.decode("utf-8")
                except UnicodeDecodeError:
                    raise fault(
                        self, row, name, "the bytes are not UTF-8: write the column as text"
                    ) from None
            elif isinstance(value, list | dict):
                raise fault(self, row, name, "a list is not a text: write the column as text")
            texts.append("" if value is None else str(value))
        return texts

    def _numbers(self, batch: Any, name: str, start: int) -> NDArray[np.float64]:
        """Return a column as float64 (rows)."""
        import pyarrow as pa

        column = batch.column(self._fields[name].name)
        kind = column.type
        if pa.types.is_boolean(kind):
            column = column.cast(pa.uint8())
        elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            raise fault(
                self, None, name, f"{kind} is not a number: remove the column, or use it with --text {name}"
            )
        if column.null_count:
            row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
            raise fault(
                self,
                start + row,
                name,
                "the cell is empty: write a number (0 if there is none), or remove the column",
            )
        numbers: NDArray[np.float64] = np.asarray(column.cast(pa.float64(), safe=False), dtype=np.float64)
        usable = np.abs(numbers) <= LARGEST
        if not usable.all():
            row = int(np.flatnonzero(~usable)[0])
            raise fault(
                self,
                start + row,
                name,
                f"{numbers[row]} is not finite or beyond {LARGEST:g}: fill it in or rescale it",
            )
        return numbers
