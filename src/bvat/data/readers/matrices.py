"""Read matrices, scipy's ``.npz`` and Matrix Market, without pickle and checking every index.

Matrix Market files are parsed here, with numpy: ``scipy.io.mmread`` can crash the process on a damaged file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bvat.data.npz import ObjectArray, read_npz
from bvat.data.readers.table import LARGEST
from bvat.engine.sparse import check_csr
from bvat.errors import GraphError, shown
from bvat.graph.validation import validate_columns

_KINDS = {
    "coordinate real": 3,
    "coordinate integer": 3,
    "coordinate pattern": 2,
    "array real": 1,
    "array integer": 1,
}
"""Supported banners of Matrix Market files, and the number of values per line."""
_Check = Callable[[Sequence[int]], None]
"""Raises GraphError unless the shape that a file claims is the expected one."""


def is_sparse(matrix: Any) -> bool:
    return bool(sp.issparse(matrix))


def read_arrays(path: Path, *optional: str) -> dict[str, Any]:
    """Return the arrays of an ``.npz`` file; reject arrays that need pickle.

    ``optional`` arrays that need pickle are skipped instead.
    """
    try:
        return read_npz(path.read_bytes(), optional)
    except OSError as error:
        raise GraphError(f"{path} cannot be read ({error.strerror}): check the file") from None
    except ObjectArray as array:
        raise GraphError(
            f"{path}, array {str(array)!r}: it contains Python objects, which can run code when loaded: save "
            "it as plain numbers or text"
        ) from None
    except ValueError as error:
        raise GraphError(f"{path} is not a readable .npz file ({error}): save it again") from None


def csr_of(arrays: Mapping[str, Any], path: Path, prefix: str = "") -> Any:
    """Build a CSR matrix from ``data``, ``indices``, ``indptr``, ``shape``, each with a prefix.

    Shapes: result of the stored ``shape``, float64.
    """
    parts = {part: arrays.get(prefix + part) for part in ("data", "indices", "indptr", "shape")}
    for part, value in parts.items():
        if value is None:
            raise GraphError(
                f"{path}: there is no array {prefix + part!r}: save the matrix in scipy's CSR format"
            )
    try:
        shape = _shape(parts["shape"])
        pointers, indices = _whole(parts["indptr"]), _whole(parts["indices"])
        data = _reals(parts["data"])
        check_csr(pointers, indices, data, shape)
        matrix = sp.csr_array((data, indices, pointers), shape=shape)
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise GraphError(f"{path}: {prefix or 'the matrix'} is invalid ({error}): save it again") from None
    return matrix


def read_features(path: Path, rows: int) -> Any:
    """Return the matrix in ``features.npz`` or ``features.mtx``: CSR or array (rows, D), float32, finite.

    A file can claim any shape in a few bytes, so it is compared with the number of nodes before memory is
    allocated for it.
    """

    def check(shape: Sequence[int]) -> None:
        if len(shape) != 2 or shape[0] != rows or shape[1] == 0:
            raise GraphError(
                f"{path} has shape {tuple(shape)}, but there are {rows} nodes: give one row per node, in the "
                "order of the nodes file"
            )

    matrix = _read_market(path, check) if path.suffix == ".mtx" else _read_scipy(path, check)
    return finite(matrix, path, "the matrix")


def finite(matrix: Any, path: Path | str, what: str) -> Any:
    """Return a matrix as float32; raise GraphError if an entry is NaN, infinite or huge."""
    values = matrix.data if is_sparse(matrix) else matrix
    validate_columns(matrix.shape[1], values.size, f"{path}: ")
    bad = np.argwhere(~(np.abs(values) <= np.float64(LARGEST)))
    if bad.size:
        if is_sparse(matrix):
            row = int(np.searchsorted(matrix.indptr, bad[0, 0], side="right")) - 1
            column = int(matrix.indices[bad[0, 0]])
        else:
            row, column = (int(k) for k in bad[0])
        raise GraphError(
            f"{path}: {what} is NaN, infinite or beyond {LARGEST:g} in row {row + 1}, column {column + 1}: "
            "fill it in or rescale it"
        )
    return matrix.astype(np.float32)


def _read_scipy(path: Path, check: _Check) -> Any:
    arrays = read_arrays(path)
    claimed = None
    with suppress(ValueError):  # what is not a shape is reported below
        claimed = _shape(arrays["shape"]) if "shape" in arrays else None
    if claimed is not None:
        check(claimed)
    kind = arrays.get("format", np.array(b""))
    name = kind.item() if kind.size == 1 else b""
    name = name.decode("ascii", "replace") if isinstance(name, bytes) else str(name)
    if name == "csr":
        return csr_of(arrays, path)
    if name == "csc" and "shape" in arrays:
        flipped = {**arrays, "shape": arrays["shape"][::-1] if arrays["shape"].ndim else arrays["shape"]}
        return sp.csr_array(csr_of(flipped, path).T)
    if name == "coo" and {"data", "row", "col", "shape"} <= arrays.keys():
        try:
            parts = (_reals(arrays["data"]), (_whole(arrays["row"]), _whole(arrays["col"])))
            return sp.csr_array(sp.coo_array(parts, shape=_shape(arrays["shape"])))
        except (ValueError, TypeError, OverflowError, MemoryError) as error:
            raise GraphError(f"{path} is invalid ({error}): save it again") from None
    raise GraphError(
        f"{path} does not contain a CSR, CSC or COO matrix: write it with "
        "scipy.sparse.save_npz(path, matrix.tocsr())"
    )


def _shape(given: Any) -> tuple[int, int]:
    sizes = _whole(np.atleast_1d(given)).tolist()
    if len(sizes) != 2 or not all(0 <= size < 2**31 for size in sizes):
        raise ValueError(f"the shape is {sizes}")
    return sizes[0], sizes[1]


def _whole(given: Any) -> NDArray[np.int64]:
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise ValueError("indices must be one-dimensional integers")
    return np.asarray(given, dtype=np.int64)


def _reals(given: Any) -> NDArray[np.float64]:
    if given.ndim != 1 or given.dtype.kind not in "biuf":
        raise ValueError("entries must be one-dimensional numbers")
    return np.asarray(given, dtype=np.float64)


def _read_market(path: Path, check: _Check) -> Any:
    """Return the matrix in a ``.mtx`` file: general, and real, integer or pattern.

    Shapes: result CSR (rows, columns) for coordinates, else an array; float64.
    """
    try:
        lines = path.read_bytes().decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise GraphError(f"{path} cannot be read ({error}): write it again as plain text") from None
    start, width, sizes = _market_header(path, lines)
    check(sizes[:2])
    expected = sizes[2] if width > 1 else sizes[0] * sizes[1]
    body = {number: line for number, line in enumerate(lines[start:], start + 1) if line.strip()}
    if len(body) != expected:
        raise GraphError(
            f"{path}: {len(body)} entries, but the header announces {expected}: write the file again"
        )
    numbers = _market_numbers(list(body.values()), width)
    if numbers is None:
        bad = (place for place, line in body.items() if _market_numbers([line], width) is None)
        wrong = next(bad, min(body))
        raise GraphError(
            f"{path}, line {wrong}: {shown(body[wrong])} is not {width} finite numbers: correct it"
        )
    return _market_matrix(path, numbers, sizes)


def _market_header(path: Path, lines: list[str]) -> tuple[int, int, list[int]]:
    """Return how many lines the header has, the values per line below it, and the sizes of the matrix."""
    banner = lines[0].lower().split() if lines else []
    width = _KINDS.get(" ".join(banner[2:4]))
    if banner[:2] != ["%%matrixmarket", "matrix"] or width is None or banner[4:] != ["general"]:
        raise GraphError(
            f"{path}, line 1: this is not the banner of a general real or integer matrix: write the file "
            "with scipy.io.mmwrite(path, matrix, symmetry='general')"
        )
    start = next((k for k, line in enumerate(lines) if k and line.strip() and line[0] != "%"), len(lines))
    return start + 1, width, _market_sizes(path, lines, start, 2 if width == 1 else 3)


def _market_sizes(path: Path, lines: list[str], start: int, count: int) -> list[int]:
    """Return rows, columns and, for coordinates, the number of entries."""
    words = lines[start].split() if start < len(lines) else []
    if len(words) != count or not all(word.isascii() and word.isdigit() and len(word) < 19 for word in words):
        raise GraphError(f"{path}, line {start + 1}: expected {count} sizes: write the file again")
    sizes = [int(word) for word in words]
    if max(sizes[:2]) >= 2**31:
        raise GraphError(f"{path}, line {start + 1}: the matrix is too large: write the file again")
    return sizes


def _market_numbers(body: list[str], width: int) -> NDArray[np.float64] | None:
    """Return the lines as an array (n, width), or None if a line is not ``width`` valid numbers."""
    if not body:
        return np.zeros((0, width))
    try:
        numbers = np.loadtxt(body, dtype=np.float64, comments=None, ndmin=2)
    except ValueError:
        return None
    good = numbers.shape == (len(body), width) and bool((np.abs(numbers) <= LARGEST).all())
    return numbers if good else None


def _market_matrix(path: Path, numbers: NDArray[np.float64], sizes: Sequence[int]) -> Any:
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
