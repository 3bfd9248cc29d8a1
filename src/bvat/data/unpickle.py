"""Read pickles of numbers without executing anything in them.

A pickle is a program that calls functions by name. This reader knows a few names, and only records with which
arguments they are called; arrays are built from these records once the whole pickle has been read.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bvat.engine.matrix import check_csr
from bvat.errors import DataError


class _Refused(Exception):
    """The pickle uses a name that is not allowed."""


class _Record:
    """A call that the pickle asks for: its arguments, and the state and items that the result would get."""

    kind = ""
    args: tuple[Any, ...] = ()
    state: Any = None

    def __init__(self, *args: Any) -> None:
        self.args = args
        self.items: dict[Any, Any] = {}

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items[key] = value


_NAMES = {
    "type": ("numpy.ndarray", "__builtin__.list", "builtins.list"),  # arguments of other calls
    "dtype": ("numpy.dtype",),
    "array": ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct"),
    "scalar": ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"),
    "matrix": ("scipy.sparse.csr.csr_matrix", "scipy.sparse._csr.csr_matrix"),
    "dict": ("collections.defaultdict",),
    "bytes": ("_codecs.encode", "__builtin__.bytes", "builtins.bytes"),  # Python 3 in old protocols
}
_CLASSES = {name: type(kind, (_Record,), {"kind": kind}) for kind, names in _NAMES.items() for name in names}


class _Reader(pickle._Unpickler):
    """An unpickler that knows only the names above, and no buffers that claim any length.

    It is based on the Python implementation: that in C allocates memory up to the highest memo index.
    """

    dispatch: ClassVar[dict[int, Callable[[pickle.Unpickler], None]]] = {
        code: action for code, action in pickle._Unpickler.dispatch.items() if code != pickle.BYTEARRAY8[0]
    }

    def find_class(self, module: str, name: str) -> type:
        if f"{module}.{name}" not in _CLASSES:
            raise _Refused(f"{module}.{name}")
        return _CLASSES[f"{module}.{name}"]


def _numbers(dtype: _Record, content: Any) -> np.ndarray[Any, Any]:
    """Return an array (n) from the records of its dtype and its bytes, which Python 2 wrote as text."""
    if isinstance(content, _Record):
        content = content.args[0] if content.args else ""
    data = content.encode("latin-1") if isinstance(content, str) else content
    kind = np.dtype(str(dtype.args[0]))
    if kind.kind not in "biuf" or not isinstance(data, bytes):
        raise _Refused(f"an array of dtype {kind}")
    return np.frombuffer(data, kind.newbyteorder(dtype.state[1])).astype(kind)


def _built(value: Any, done: dict[int, Any]) -> Any:
    """Replace records by the objects they describe; ``done`` has these by id, to build shared ones once."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if id(value) not in done:
        done[id(value)] = _build(value, done)
    return done[id(value)]


def _build(value: Any, done: dict[int, Any]) -> Any:
    kind = getattr(value, "kind", type(value).__name__)
    if kind in ("list", "tuple"):
        return type(value)(_built(item, done) for item in value)
    if kind == "dict":
        items = value if isinstance(value, dict) else value.items
        return {key: _built(item, done) for key, item in items.items()}
    if kind == "array":
        _, shape, dtype, fortran, content = value.state
        return _numbers(dtype, content).reshape(shape, order="F" if fortran else "C")
    if kind == "scalar":
        return _numbers(*value.args).item()
    if kind == "matrix":
        parts = ("data", "indices", "indptr", "_shape")
        data, indices, indptr, (rows, columns) = (_built(value.state[part], done) for part in parts)
        if not all(type(length) is int and 0 <= length < 2**31 for length in (rows, columns)):
            raise ValueError("the shape of a sparse matrix")
        check_csr(indptr, indices, data, (rows, columns))
        return sp.csr_matrix((data, indices, indptr), shape=(rows, columns))
    raise _Refused(f"a {kind}")


def unpickle(content: bytes, name: str) -> Any:
    """Return the arrays, CSR matrices, dicts and lists that a pickle of Python 2 or 3 holds.

    DataError, which mentions the file by ``name``, if it contains anything else or is damaged.
    """
    try:
        return _built(_Reader(io.BytesIO(content), encoding="latin-1").load(), {})
    except _Refused as refused:
        raise DataError(
            f"{name} is refused because it contains {refused}: only numbers, arrays, CSR matrices, dicts and "
            "lists are read from a pickle, so use the original file"
        ) from None
    except Exception as fault:  # a damaged pickle can fail in any way
        raise DataError(
            f"{name} is not a readable pickle ({type(fault).__name__}): get the original file"
        ) from None
