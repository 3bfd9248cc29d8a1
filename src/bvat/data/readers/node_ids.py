"""The ids of many nodes, in arrays instead of Python objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bvat.data.readers.node_table import empty_id, repeated_id, unknown_id
from bvat.data.readers.parquet_table import ParquetTable
from bvat.data.readers.table import fault, require_columns

_INTEGER, _TEXT = pa.int64(), pa.large_string()
_SPAN = 8
"""Integer ids are looked up in an array if the largest is at most this many times the number of nodes."""


class NodeNames(Sequence[str]):
    """The names of nodes as a sequence; integers take 8 bytes each."""

    def __init__(self, ids: Any) -> None:
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, which: Any) -> Any:
        return self._ids[which].cast(_TEXT).to_pylist() if isinstance(which, slice) else str(self._ids[which])


class NodeIndex:
    """Finds the numbers of nodes by their ids: integers, or texts if either table has texts.

    Integers without large gaps take 12 bytes per node. For other ids, a hash table is built for every batch.
    """

    def __init__(self, nodes: ParquetTable, edges: ParquetTable) -> None:
        self._nodes, self._edges = nodes, edges
        (name,), ends = require_columns(nodes, "id"), require_columns(edges, "source", "target")
        integers = all([_is_integer(nodes, name), *(_is_integer(edges, end) for end in ends)])
        self._kind = _INTEGER if integers else _TEXT
        batches = [self._ids_in(nodes, batch, name) for batch in nodes.batches((), [name])]
        self.ids = pa.concat_arrays(batches)
        empty = self.ids.is_null() if integers else pc.equal(self.ids, "").fill_null(True)
        if pc.any(empty).as_py():
            raise empty_id(nodes, pc.index(empty, True).as_py())
        self._low, self._places = 0, np.zeros(0, np.int32)
        if integers:
            self._low, high = (end.as_py() for end in pc.min_max(self.ids).values())
            if high - self._low < _SPAN * len(self.ids):
                self._places = np.full(high - self._low + 1, -1, np.int32)
                self._places[np.asarray(self.ids) - self._low] = np.arange(len(self.ids), dtype=np.int32)
        if not self._places.size or int((self._places >= 0).sum()) < len(self.ids):
            self._check_distinct()

    def find(self, batch: Any, name: str, start: int) -> NDArray[Any]:
        """Return the numbers of the nodes in a column of ids of the edges, int32 (n).

        ``start`` is the number of the first row of the batch.
        """
        column = self._ids_in(self._edges, batch, name)
        if not column.null_count and self._places.size:
            place = np.asarray(column) - self._low
            known = (place >= 0) & (place < self._places.size)
            rows = np.where(known, self._places[np.where(known, place, 0)], np.int32(-1))
        else:
            rows = np.asarray(pc.index_in(column, value_set=self.ids).fill_null(-1))
        if rows.size and rows.min() < 0:
            row = int(np.argmax(rows < 0))
            given = column[row].as_py()
            raise unknown_id(self._edges, start + row, name, "" if given is None else str(given), self._nodes)
        return rows

    def _ids_in(self, table: ParquetTable, batch: Any, name: str) -> Any:
        try:
            return table.column(batch, name).cast(self._kind)
        except pa.ArrowInvalid:
            problem = "an id is beyond 2^63 or not UTF-8: write all ids as text"
            raise fault(table, None, name, problem) from None

    def _check_distinct(self) -> None:
        coded = self.ids.dictionary_encode()  # in the order of their first rows
        if len(coded.dictionary) < len(self.ids):
            numbers = np.asarray(coded.indices)
            row = int(np.argmax(numbers != np.arange(numbers.size)))
            raise repeated_id(self._nodes, row, str(self.ids[row]), int(numbers[row]))


def _is_integer(table: ParquetTable, name: str) -> bool:
    """Return whether a column has integers; GraphError unless it has integers or texts."""
    kind = table.kind(name)
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind):
        return True
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return False
    raise fault(table, None, name, f"{kind} is neither whole numbers nor text: --stream reads these as ids")
