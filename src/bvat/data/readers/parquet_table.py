"""Read Parquet files with pyarrow (the extra ``parquet``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bvat.data.readers.table import LARGEST, Block, fault
from bvat.errors import GraphError


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
            self._content: Any = parquet.read_table(path, memory_map=False)
            self.names = tuple(str(name).strip() for name in self._content.column_names)
        except Exception as error:  # pyarrow fails in many ways on a damaged file
            raise GraphError(
                f"{path} is not a readable Parquet file ({type(error).__name__}): write it again"
            ) from None
        if not self.names:
            raise fault(self, None, None, "the table has no columns: write it again")

    def blocks(self, texts: Sequence[str], numbers: Sequence[str]) -> Iterator[Block]:
        """Yield all rows of the named columns at once; raise GraphError at an invalid value."""
        rows = int(self._content.num_rows)
        if rows == 0:
            return
        matrix = np.empty((rows, len(numbers)), dtype=np.float64)
        for k, name in enumerate(numbers):
            matrix[:, k] = self._numbers(name)
        yield Block(0, {name: self._texts(name) for name in texts}, matrix)

    def place(self, row: int) -> str:
        """Return the row's number, counted from 1."""
        return f"row {row + 1}"

    def _column(self, name: str) -> Any:
        return self._content.column(self.names.index(name))

    def _texts(self, name: str) -> list[str]:
        """Return a column as strings: missing values are empty, integers have no decimal point."""
        column = self._column(name)
        try:
            values = column.to_pylist()
        except Exception as error:  # text that is not UTF-8, dates out of range, ...
            raise fault(
                self, None, name, f"cannot be read ({type(error).__name__}): write it as text"
            ) from None
        texts = []
        for row, value in enumerate(values):
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

    def _numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column as float64 (rows)."""
        import pyarrow as pa

        column, kind = self._column(name), self._column(name).type
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
                row,
                name,
                "the cell is empty: write a number (0 if there is none), or remove the column",
            )
        numbers: NDArray[np.float64] = np.asarray(column.cast(pa.float64(), safe=False), dtype=np.float64)
        usable = np.abs(numbers) <= LARGEST
        if not usable.all():
            row = int(np.flatnonzero(~usable)[0])
            raise fault(
                self,
                row,
                name,
                f"{numbers[row]} is not finite or beyond {LARGEST:g}: fill it in or rescale it",
            )
        return numbers
