"""CSV files, plain or compressed with gzip, read with pyarrow.

pyarrow does not say in which line of a file an error is, and it accepts quotation marks in places where they
are mistakes. From the first chunk with quotation marks or an error, the csv module takes over, and the line
of a row is found by reading the file again: exact messages cost nothing for files without errors.
"""

from __future__ import annotations

import csv
import gzip
import sys
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, TextIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from bvat.data.readers.table import EMPTY, Block, check_rows, check_unpacked, fault, text_hint
from bvat.errors import GraphError, shown
from bvat.graph.validation import LARGEST

LONGEST = 2**23
"""Characters of a line at most: the cells of a longer one could fill the memory."""
_BYTES = 2**20
"""Size of a chunk."""
_CELLS, _ROWS, _MOST_CELLS = 2**14, 2**9, 2**21
"""Cells per block read by the csv module, its minimum of rows, and its limit for wide tables: small blocks
stay in the CPU cache."""
_MARK = "\ufeff".encode()
"""What some programs write at the start of a file to say that it is UTF-8."""


class CsvTable:
    """A CSV file with column names in its first line; see :class:`Table`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        header = next(self._records(1), [None])[0]
        if header is None:
            raise fault(self, None, None, "the file is empty: its first line must name the columns")
        self.names = tuple(name.strip() for name in header)

    def blocks(self, texts: Sequence[str], numbers: Sequence[str]) -> Iterator[Block]:
        start = yield from self._simple_blocks(texts, numbers)
        if start is None:
            return
        width, place = len(self.names), {name: k for k, name in enumerate(self.names)}
        size = min(max(_ROWS, _CELLS // width), max(1, _MOST_CELLS // width))
        for rows in self._records(size, skip=start + 1):
            if odd := [k for k, row in enumerate(rows) if len(row) != width]:
                problem = (
                    f"{len(rows[odd[0]])} cells, but the first line has {width}: add or remove cells, and "
                    "put cells that contain commas in quotation marks"
                )
                raise fault(self, start + odd[0], None, problem)
            columns = list(zip(*rows, strict=True))
            matrix = np.empty((len(rows), len(numbers)), dtype=np.float64)
            for k, name in enumerate(numbers):
                parsed = _floats(columns[place[name]])
                if parsed is None:
                    self._refuse_numbers(rows, start, [place[name] for name in numbers])
                matrix[:, k] = parsed
            yield Block(start, {name: columns[place[name]] for name in texts}, matrix)
            start += len(rows)
            check_rows(self, start)

    def _simple_blocks(
        self, texts: Sequence[str], numbers: Sequence[str]
    ) -> Generator[Block, None, int | None]:
        """Yield rows as long as pyarrow can read them; return their number if the file goes on, else None."""
        done, header = 0, True
        kinds = dict.fromkeys(numbers, pa.float64()) | dict.fromkeys(texts, pa.string())
        convert = arrow_csv.ConvertOptions(column_types=kinds, include_columns=list(kinds), null_values=[])
        with suppress(OSError, EOFError, zlib.error):  # the csv module fails too, and reports it
            for lines in self._chunks():
                if b'"' in lines or lines.count(b"\r") != lines.count(b"\r\n"):
                    return done
                if header:
                    lines = lines.removeprefix(_MARK).lstrip(b"\r\n")
                    header, lines = not lines, lines.partition(b"\n")[2]
                if not lines:
                    continue
                rows = _parsed(lines, self.names, convert)
                if rows is None:
                    return done
                matrix = np.empty((rows.num_rows, len(numbers)), dtype=np.float64)
                for k, name in enumerate(numbers):
                    matrix[:, k] = rows.column(name).to_numpy()
                if not bool((np.abs(matrix) <= LARGEST).all()):
                    return done
                yield Block(done, {name: rows.column(name).to_pylist() for name in texts}, matrix)
                done += rows.num_rows
                check_rows(self, done)
            return None
        return done

    def _chunks(self) -> Iterator[bytes]:
        """Yield the lines of the file, many at a time; OSError if one is too long."""
        rest, read = b"", 0
        with self._open() as file:
            while chunk := file.buffer.read(_BYTES):
                read += len(chunk)
                check_unpacked(self, read)
                end = chunk.rfind(b"\n") + 1
                if end:
                    yield rest + chunk[:end]
                    rest = b""
                rest += chunk[end:]
                if len(rest) > LONGEST:
                    raise OSError
            yield rest

    def place(self, row: int) -> str:
        """Return the line in which a row starts; a row with a quoted line break spans several lines."""
        return f"line {self._line(row + 1)}"

    def _line(self, wanted: int) -> int:
        """Return the line of a record (the header is record 0), or of the first that cannot be read."""
        with self._open() as file:
            reader = csv.reader(self._lines(file), strict=True)
            before = 0
            with suppress(csv.Error, UnicodeDecodeError, GraphError):
                for record in reader:
                    wanted -= bool(record)
                    if wanted < 0:
                        break
                    before = reader.line_num
        return before + 1

    def _open(self) -> TextIO:
        try:
            if self.path.name.lower().endswith(".gz"):
                return gzip.open(self.path, "rt", encoding="utf-8-sig", newline="")
            return self.path.open(encoding="utf-8-sig", newline="")
        except OSError as error:
            raise GraphError(f"{self.path} cannot be read ({error.strerror}): check the file") from None

    def _lines(self, file: TextIO) -> Iterator[str]:
        """Yield the lines; raise GraphError at one that is too long, and if there are too many."""
        number, read = 0, 0
        while line := file.readline(LONGEST + 1):
            number, read = number + 1, read + len(line)
            if len(line) > LONGEST:
                raise GraphError(
                    f"{self.path}, line {number}: more than {LONGEST:,} characters: write one line per row"
                )
            if number % 2**12 == 0 or len(line) > 2**16:
                check_rows(self, number)
                check_unpacked(self, read)
            yield line

    def _records(self, size: int, skip: int = 0) -> Iterator[list[list[str]]]:
        """Yield the records, ``size`` at a time, skipping blank lines."""
        with self._open() as file:
            records = filter(None, csv.reader(self._lines(file), strict=True))
            try:
                next(islice(records, skip, skip), None)
                while rows := list(islice(records, size)):
                    yield rows
            except csv.Error as error:
                raise GraphError(
                    f"{self.path}, line {self._line(sys.maxsize)}: {error}: close the quotation marks, and "
                    "double the quotation marks inside a cell"
                ) from None
            except UnicodeDecodeError:
                self._refuse_encoding()
            except (OSError, EOFError, zlib.error) as error:
                raise GraphError(
                    f"{self.path} cannot be read to its end ({error}): write or compress it again"
                ) from None

    def _refuse_encoding(self) -> NoReturn:
        with self._open() as file, suppress(OSError, EOFError, zlib.error):  # truncated after the bad byte
            for number, line in enumerate(file.buffer, 1):
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise GraphError(
                        f"{self.path}, line {number}, byte {error.start + 1}: {line[error.start]:#04x} is "
                        "not UTF-8: save the file with the encoding UTF-8"
                    ) from None
        raise GraphError(f"{self.path} is not UTF-8: save the file with the encoding UTF-8")

    def _refuse_numbers(self, rows: list[list[str]], start: int, wanted: list[int]) -> NoReturn:
        k, column = next((k, c) for k, row in enumerate(rows) for c in wanted if _floats([row[c]]) is None)
        value, name = rows[k][column], self.names[column]
        hint = text_hint(self, name)
        remedy = f"write one, {'' if hint else 'or '}remove the column{hint}"
        problem = f"{shown(value)} is not a number up to {LARGEST:g}: {remedy}"
        raise fault(self, start + k, name, problem if value.strip() else EMPTY)


_WIDEST = 50_000
"""Columns up to which pyarrow reads a table: each takes it 5 kB, however few rows there are."""


def _parsed(lines: bytes, names: Sequence[str], convert: Any) -> Any:
    """Return complete lines as a table of pyarrow; None if it cannot read them, or would change them."""
    if len(names) > _WIDEST or lines.startswith(_MARK):  # it would drop a mark that is not the first one
        return None
    read = arrow_csv.ReadOptions(column_names=names, use_threads=False, block_size=len(lines) + 1)
    try:
        lines.decode("utf-8")  # pyarrow looks at the texts that are asked for, not at the other columns
        return arrow_csv.read_csv(pa.BufferReader(lines), read, convert_options=convert)
    except (UnicodeDecodeError, pa.ArrowException):
        return None


def _floats(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """Return the numbers (n) in the cells, or None if one is not a valid number."""
    if "_" in "".join(cells):  # Python accepts 2020_01 as a number, other programs do not
        return None
    try:
        numbers = np.fromiter(map(float, cells), dtype=np.float64, count=len(cells))
    except ValueError:
        return None
    return numbers if bool((np.abs(numbers) <= LARGEST).all()) else None
