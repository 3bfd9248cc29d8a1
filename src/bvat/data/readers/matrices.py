"""Read matrices, scipy's ``.npz`` and Matrix Market, without pickle and checking every index."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bvat.data.readers.matrix_market import read_market
from bvat.data.readers.table import LARGEST
from bvat.errors import GraphError


def is_sparse(matrix: Any) -> bool:
    """Return whether a matrix is a scipy sparse matrix."""
    return bool(sp.issparse(matrix))


def read_arrays(path: Path, *optional: str) -> dict[str, Any]:
    """Return the arrays of an ``.npz`` file; reject arrays that need pickle.

    ``optional`` arrays that need pickle are skipped instead.
    """
    arrays = {}
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            for key in stored.files:
                try:
                    arrays[key] = stored[key]
                except ValueError as error:
                    if "allow_pickle" not in str(error):
                        raise
                    if key not in optional:
                        raise GraphError(
                            f"{path}, array {key!r}: it contains Python objects, which can run code when "
                            "loaded: save it as plain numbers or text"
                        ) from None
    except GraphError:
        raise
    except Exception as error:  # a damaged file can fail in any way
        raise GraphError(
            f"{path} is not a readable .npz file ({type(error).__name__}): save it again"
        ) from None
    return arrays


def array_names(path: Path) -> set[str]:
    """Return the names of the arrays in an ``.npz`` file; none if it is not one."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist()}
    except Exception:  # the reader reports what is wrong with the file
        return set()


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
        rows, columns = _shape(parts["shape"])
        pointers, indices = _whole(parts["indptr"]), _whole(parts["indices"])
        data = _reals(parts["data"])
        # scipy's own check accepts pointers that return to 0, and later writes outside the arrays
        if pointers.size != rows + 1 or pointers[0] != 0 or (np.diff(pointers) < 0).any():
            raise ValueError("the row pointers are not ascending from 0")
        if not pointers[-1] == indices.size == data.size:
            raise ValueError("the number of entries does not match the row pointers")
        if indices.size and not 0 <= indices.min() <= indices.max() < columns:
            raise ValueError(f"a column index is outside 0 to {columns - 1}")
        matrix = sp.csr_array((data, indices, pointers), shape=(rows, columns))
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise GraphError(f"{path}: {prefix or 'the matrix'} is invalid ({error}): save it again") from None
    return matrix


def read_features(path: Path) -> Any:
    """Return the matrix in ``features.npz`` or ``features.mtx``: CSR or array (N, D), float32, finite."""
    matrix = read_market(path) if path.suffix == ".mtx" else _read_scipy(path)
    return finite(matrix, path, "the matrix")


def finite(matrix: Any, path: Path | str, what: str) -> Any:
    """Return a matrix as float32; raise GraphError if an entry is NaN, infinite or huge."""
    values = matrix.data if is_sparse(matrix) else matrix
    bad = np.argwhere(~(np.abs(values) <= LARGEST))
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


def _read_scipy(path: Path) -> Any:
    arrays = read_arrays(path)
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
