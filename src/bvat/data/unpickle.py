"""Read the pickles of the Planetoid files, which Python 2 wrote; only the six names below are known."""

from __future__ import annotations

import io
import pickle
from collections import defaultdict
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bvat.engine.matrix import check_csr
from bvat.errors import DataError


class _Refused(Exception):
    """The pickle contains something that is not allowed."""


class _Dtype:
    def __init__(self, kind: Any, *_: Any) -> None:
        self.kind = np.dtype(str(kind))
        if self.kind.kind not in "biuf":
            raise _Refused(f"an array of dtype {self.kind}")

    def __setstate__(self, state: Any) -> None:
        self.order = state[1]

    def read(self, content: str) -> np.ndarray[Any, Any]:
        """Return the numbers (n) in bytes, which Python 2 wrote as text."""
        return np.frombuffer(content.encode("latin-1"), self.kind.newbyteorder(self.order)).astype(self.kind)


class _Array:
    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        self.value = dtype.read(content).reshape(shape, order="F" if fortran else "C")


class _Matrix:
    def __setstate__(self, state: Any) -> None:
        data, indices, indptr = (state[part].value for part in ("data", "indices", "indptr"))
        rows, columns = state["_shape"]
        if not all(type(length) is int and 0 <= length < 2**31 for length in (rows, columns)):
            raise ValueError("the shape of a sparse matrix")
        check_csr(indptr, indices, data, (rows, columns))
        self.value = sp.csr_matrix((data, indices, indptr), shape=(rows, columns))


_ALLOWED: dict[str, Any] = {
    "numpy.ndarray": np.ndarray,  # an argument of _reconstruct
    "numpy.dtype": _Dtype,
    "numpy.core.multiarray._reconstruct": _Array,
    "scipy.sparse.csr.csr_matrix": _Matrix,
    "collections.defaultdict": defaultdict,
    "__builtin__.list": list,
}


class _Reader(pickle._Unpickler):
    """An unpickler that knows only the names above, and no buffers that claim any length.

    It is based on the Python implementation: that in C allocates memory up to the highest memo index.
    """

    dispatch: ClassVar[dict[int, Callable[[pickle.Unpickler], None]]] = {
        code: action for code, action in pickle._Unpickler.dispatch.items() if code != pickle.BYTEARRAY8[0]
    }

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in _ALLOWED:
            raise _Refused(f"{module}.{name}")
        return _ALLOWED[f"{module}.{name}"]


def unpickle(content: bytes, name: str) -> Any:
    """Return the array, CSR matrix or dict that a pickle of Python 2 holds.

    DataError, which mentions the file by ``name``, if it contains anything else or is damaged.
    """
    try:
        found = _Reader(io.BytesIO(content), encoding="latin-1").load()
        if isinstance(found, dict):
            return dict(found)
        if isinstance(found, _Array | _Matrix):
            return found.value
        raise _Refused(f"a {type(found).__name__}")
    except _Refused as refused:
        raise DataError(
            f"{name} is refused because it contains {refused}: only numeric arrays, CSR matrices and dicts "
            "are read from a pickle, so use the original file"
        ) from None
    except Exception as fault:  # a damaged pickle can fail in any way
        raise DataError(
            f"{name} is not a readable pickle ({type(fault).__name__}): get the original file"
        ) from None
