"""CSV files, plain or compressed with gzip.

Chunks without quotation marks are split at commas and line ends in one go; from the first chunk that is more
complicated (or wrong), the csv module takes over. Cells are converted column by column. Only if a block fails
is it examined cell by cell, and the line number of a row is found by reading the file again: exact error
messages cost nothing for files without errors.
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
from typing import NoReturn, TextIO

import numpy as np
from numpy.typing import NDArray

from bvat.data.readers.table import LARGEST, Block, check_rows, check_unpacked, fault, number_problem
from bvat.errors import GraphError

_BYTES = 2**20
"""Size of a chunk."""
_CELLS, _ROWS, _MOST_CELLS = 2**14, 2**9, 2**21
"""Cells per block read by the csv module, its minimum of rows, and its limit for wide tables: small blocks
stay in the CPU cache."""
LONGEST = 2**23
"""Characters of a line at most: the cells of a longer one could fill the memory."""

Columns = Sequence[Sequence[str]]


class CsvTable:
    """A CSV file with column names in its first line; see :class:`bvat.data.readers.table.Table`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        header = next(self._blocks_of(1), [None])[0]
        if header is None:
            raise fault(self, None, None, "the file is empty: its first line must name the columns")
        self.names = tuple(name.strip() for name in header)

    def blocks(self, texts: Sequence[str], numbers: Sequence[str]) -> Iterator[Block]:
        """Yield the rows of the named columns; raise GraphError at a row that cannot be read."""
        start = 0
        place = {name: k for k, name in enumerate(self.names)}
        text_at = [(name, place[name]) for name in texts]
        number_at = [place[name] for name in numbers]
        for columns in self._columns():
            matrix = np.empty((len(columns[0]), len(number_at)), dtype=np.float64)
            for k, column in enumerate(number_at):
                parsed = _floats(columns[column])
                if parsed is None:
                    self._refuse_numbers(columns, start, number_at)
                matrix[:, k] = parsed
            yield Block(start, {name: columns[column] for name, column in text_at}, matrix)
            start += len(columns[0])
            check_rows(self, start)

    def _columns(self) -> Iterator[Columns]:
        """Yield blocks of rows, as columns."""
        width = len(self.names)
        start = yield from self._plain_columns()
        if start is not None:
            size = min(max(_ROWS, _CELLS // width), max(1, _MOST_CELLS // width))
            for rows in self._blocks_of(size, skip=start + 1):
                if set(map(len, rows)) != {width}:
                    self._refuse_lengths(rows, start)
                yield list(zip(*rows, strict=True))
                start += len(rows)

    def _plain_columns(self) -> Generator[Columns, None, int | None]:
        """Yield rows as long as they are simple; return their number if the file continues, else None."""
        width, done, rest, header, read = len(self.names), 0, b"", True, 0
        unreadable = (OSError, EOFError, zlib.error)  # the csv module fails too, and reports it
        with self._open() as file, suppress(*unreadable):
            while True:
                chunk = file.buffer.read(_BYTES)
                end = chunk.rfind(b"\n") + 1
                read += len(chunk)
                check_unpacked(self, read)
                if chunk and not end:
                    rest += chunk
                    if len(rest) > LONGEST:
                        return done
                    continue
                whole, rest = rest + chunk[:end], chunk[end:]
                if whole:
                    columns = _cut(whole if whole.endswith(b"\n") else whole + b"\n", width)
                    if columns is None:
                        return done
                    if header:
                        columns, header = [column[1:] for column in columns], False
                    if columns[0]:
                        yield columns
                    done += len(columns[0])
                if not chunk:
                    return None
        return done

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

    def _blocks_of(self, size: int, skip: int = 0) -> Iterator[list[list[str]]]:
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
        """Find the first byte that is not UTF-8."""
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

    def _refuse_lengths(self, rows: list[list[str]], start: int) -> NoReturn:
        width = len(self.names)
        k, row = next((k, row) for k, row in enumerate(rows) if len(row) != width)
        raise fault(
            self,
            start + k,
            None,
            f"{len(row)} cells, but the first line has {width}: add or remove cells, and put cells that "
            "contain commas in quotation marks",
        )

    def _refuse_numbers(self, columns: Columns, start: int, wanted: list[int]) -> NoReturn:
        for k in range(len(columns[0])):
            for column in wanted:
                problem = number_problem(columns[column][k], self.names[column])
                if problem is not None:
                    raise fault(self, start + k, self.names[column], problem)
        raise fault(self, start, None, "this row or one below cannot be read: write plain numbers")


def _cut(chunk: bytes, width: int) -> list[list[str]] | None:
    """Split complete lines of ``width`` cells into columns; None if they are not that simple."""
    chunk = chunk.replace(b"\r\n", b"\n")
    if b'"' in chunk or b"\r" in chunk or width == 1:  # in a single column, a blank line looks like a cell
        return None
    marks = np.frombuffer(chunk, dtype=np.uint8)
    marks = marks[(marks == ord(",")) | (marks == ord("\n"))]
    if marks.size % width or not (
        (marks[width - 1 :: width] == ord("\n")).all()
        and np.count_nonzero(marks == ord("\n")) == marks.size // width
    ):
        return None
    try:
        cells = chunk[:-1].decode("utf-8").replace("\n", ",").split(",")
    except UnicodeDecodeError:
        return None
    return [cells[k::width] for k in range(width)]


def _floats(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """Return the numbers (n) in the cells, or None if one is not a valid number."""
    if "_" in "".join(cells):  # Python accepts 2020_01 as a number, other programs do not
        return None
    try:
        numbers = np.fromiter(map(float, cells), dtype=np.float64, count=len(cells))
    except ValueError:
        return None
    return numbers if bool((np.abs(numbers) <= LARGEST).all()) else None
