"""Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from bvat.data.readers.table import EMPTY, Block, check_rows, check_unpacked, fault, text_hint
from bvat.errors import GraphError
from bvat.graph.validation import LARGEST

_CELLS = 2**20
"""Cells per block."""
_BYTES = 2**20
"""Bytes of a column that are read at once: a file may be a single group of rows."""


class ParquetTable:
    """A Parquet file; see :class:`Table`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with parquet.ParquetFile(path) as file:
                fields = list(file.schema_arrow)
                groups = [file.metadata.row_group(k) for k in range(file.metadata.num_row_groups)]
                rows = int(file.metadata.num_rows)
        except Exception as error:  # pyarrow fails in many ways on a damaged file
            raise self._damaged(error) from None
        self.names = tuple(field.name.strip() for field in fields)
        self.rows = rows
        self._fields = dict(zip(self.names, fields, strict=True))
        if not self.names:
            raise fault(self, None, None, "the table has no columns: write it again")
        check_rows(self, rows)
        check_unpacked(self, sum(int(group.total_byte_size) for group in groups))

    def blocks(self, texts: Sequence[str], numbers: Sequence[str]) -> Iterator[Block]:
        start = 0
        for batch in self.batches(texts, numbers):
            matrix = np.empty((batch.num_rows, len(numbers)), dtype=np.float64)
            for k, name in enumerate(numbers):
                matrix[:, k] = self.numbers(batch, name, start)
            yield Block(start, {name: self._texts(batch, name, start) for name in texts}, matrix)
            start += batch.num_rows

    def batches(self, texts: Sequence[str], others: Sequence[str], cells: int = _CELLS) -> Iterator[Any]:
        """Yield batches of rows; texts that repeat are read once, whatever the number of rows."""
        plain = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
        repeated = [self._fields[name].name for name in texts if self.kind(name) in plain]
        columns = [self._fields[name].name for name in (*texts, *others)]
        try:
            options = {"pre_buffer": False, "buffer_size": _BYTES}  # else all that was read stays in memory
            with parquet.ParquetFile(self.path, read_dictionary=repeated, **options) as file:
                for batch in file.iter_batches(max(1, cells // max(1, len(columns))), columns=columns):
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

    def column(self, batch: Any, name: str) -> Any:
        """Return a column of a batch."""
        return batch.column(self._fields[name].name)

    def kind(self, name: str) -> Any:
        """Return the type of a column."""
        return self._fields[name].type

    def place(self, row: int) -> str:
        return f"row {row + 1}"

    def _texts(self, batch: Any, name: str, start: int) -> list[str]:
        """Return a column as strings: missing values are empty, integers have no decimal point."""
        column = self.column(batch, name)
        repeated = pa.types.is_dictionary(column.type)
        try:
            values = (column.dictionary if repeated else column).to_pylist()
        except Exception as error:  # text that is not UTF-8, dates out of range, ...
            problem = f"cannot be read ({type(error).__name__}): write it as text"
            raise fault(self, None, name, problem) from None
        places = column.indices.to_pylist() if repeated else range(len(values))
        texts: dict[int | None, str] = {None: ""}
        for row, k in enumerate(places, start):
            if k not in texts:
                texts[k] = self._text(values[k], row, name)
        return [texts[k] for k in places]

    def _text(self, value: Any, row: int, name: str) -> str:
        if value is None or value != value:
            return ""
        if isinstance(value, float) and value.is_integer():
            return str(int(value))
        if isinstance(value, list | dict):
            raise fault(self, row, name, "a list is not a text: write the column as text")
        try:
            return value.decode("utf-8") if isinstance(value, bytes) else str(value)
        except UnicodeDecodeError:
            raise fault(self, row, name, "the bytes are not UTF-8: write the column as text") from None

    def numbers(self, batch: Any, name: str, start: int) -> NDArray[np.float64]:
        column = self.column(batch, name)
        kind = column.type
        if pa.types.is_boolean(kind):
            column = column.cast(pa.uint8())
        elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            problem = f"{kind} is not a number: remove the column{text_hint(self, name)}"
            raise fault(self, None, name, problem)
        if column.null_count:
            raise fault(self, start + int(np.argmax(np.asarray(column.is_null()))), name, EMPTY)
        numbers: NDArray[np.float64] = np.asarray(column.cast(pa.float64(), safe=False), dtype=np.float64)
        usable = np.abs(numbers) <= LARGEST
        if not usable.all():
            row = int(np.argmin(usable))
            problem = f"{numbers[row]} is not finite or beyond {LARGEST:g}: fill it in or rescale it"
            raise fault(self, start + row, name, problem)
        return numbers
