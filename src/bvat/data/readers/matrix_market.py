"""Read Matrix Market files. Unlike scipy's parser, this one cannot crash the process on a damaged file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bvat.data.readers.table import LARGEST, shown
from bvat.errors import GraphError

_KINDS = {
    "coordinate real": 3,
    "coordinate integer": 3,
    "coordinate pattern": 2,
    "array real": 1,
    "array integer": 1,
}
"""Supported banners, and the number of values per line."""
_LARGEST = 2**31


def read_market(path: Path, check: Callable[[Sequence[int]], None] = lambda shape: None) -> Any:
    """Return the matrix in a ``.mtx`` file: general, and real, integer or pattern.

    ``check`` gets the shape that the file claims before memory is allocated for it.

    Shapes: result CSR (rows, columns) for coordinates, else an array; float64.
    """
    try:
        lines = path.read_bytes().decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise GraphError(f"{path} cannot be read ({error}): write it again as plain text") from None
    banner = lines[0].lower().split() if lines else []
    width = _KINDS.get(" ".join(banner[2:4]))
    if banner[:2] != ["%%matrixmarket", "matrix"] or width is None or banner[4:] != ["general"]:
        raise GraphError(
            f"{path}, line 1: this is not the banner of a general real or integer matrix: write the file "
            "with scipy.io.mmwrite(path, matrix, symmetry='general')"
        )
    start = next((k for k, line in enumerate(lines) if k and line.strip() and line[0] != "%"), len(lines))
    sizes = _sizes(path, lines, start, 2 if width == 1 else 3)
    check(sizes[:2])
    expected = sizes[2] if width > 1 else sizes[0] * sizes[1]
    body = [line for line in lines[start + 1 :] if line.strip()]
    if len(body) != expected:
        raise GraphError(
            f"{path}: {len(body)} entries, but the header announces {expected}: write the file again"
        )
    numbers = _numbers(body, width)
    if numbers is None:
        _refuse(path, lines, start + 1, width)
    return _matrix(path, numbers, sizes)


def _sizes(path: Path, lines: Sequence[str], start: int, count: int) -> list[int]:
    """Return rows, columns and, for coordinates, the number of entries."""
    words = lines[start].split() if start < len(lines) else []
    if len(words) != count or not all(word.isascii() and word.isdigit() and len(word) < 19 for word in words):
        raise GraphError(f"{path}, line {start + 1}: expected {count} sizes: write the file again")
    sizes = [int(word) for word in words]
    if max(sizes[:2]) >= _LARGEST:
        raise GraphError(f"{path}, line {start + 1}: the matrix is too large: write the file again")
    return sizes


def _numbers(body: Sequence[str], width: int) -> NDArray[np.float64] | None:
    """Return the lines as an array (n, width), or None if a line is not ``width`` valid numbers."""
    words = " ".join(body).split()
    if len(words) != width * len(body) or any(len(line.split(None, width)) != width for line in body):
        return None
    try:
        numbers = np.fromiter(map(float, words), dtype=np.float64, count=len(words)).reshape(-1, width)
    except ValueError:
        return None
    return numbers if bool((np.abs(numbers) <= LARGEST).all()) else None


def _refuse(path: Path, lines: Sequence[str], start: int, width: int) -> NoReturn:
    for number, line in enumerate(lines[start:], start + 1):
        if line.strip() and _numbers([line], width) is None:
            raise GraphError(
                f"{path}, line {number}: {shown(line)} is not {width} finite numbers: correct it"
            )
    raise GraphError(f"{path} cannot be read as numbers: write the file again")


def _matrix(path: Path, numbers: NDArray[np.float64], sizes: Sequence[int]) -> Any:
    rows, columns = sizes[:2]
    if len(sizes) == 2:
        return numbers.reshape(columns, rows).T.copy()  # column by column
    places = numbers[:, :2]
    wrong = np.flatnonzero(
        ((places < 1) | (places > (rows, columns)) | (places != np.trunc(places))).any(axis=1)
    )
    if wrong.size:
        place = " ".join(f"{part:g}" for part in places[wrong[0]])
        raise GraphError(
            f"{path}, entry {int(wrong[0]) + 1}: {place} is outside a matrix of {rows} x {columns}, "
            "counted from 1: correct it"
        )
    values = numbers[:, 2] if numbers.shape[1] == 3 else np.ones(len(numbers))
    row, column = (places - 1).astype(np.int64).T
    return sp.csr_array(sp.coo_array((values, (row, column)), shape=(rows, columns)))
