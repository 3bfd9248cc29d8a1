"""Read pickles of numbers without executing anything in them.

A pickle is a program that calls functions by name. This reader maps every name to a placeholder that only
records its arguments (a dtype, a shape, some bytes), and builds the arrays from these records once the whole
pickle has been read. No numpy or scipy function is ever called on behalf of the file, which also makes the
reader independent of renamed modules (``numpy.core`` -> ``numpy._core``).
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from bvat.engine.sparse import check_csr
from bvat.errors import DataError

_Done = dict[int, Any]
"""Objects built so far, by the id of their record, so that shared parts are built once."""
_BYTE_ORDERS: dict[Any, Literal["<", ">", "="]] = {"<": "<", ">": ">", "|": "=", "=": "="}


class _Refused(Exception):
    """The pickle uses a name that is not allowed."""


class _Note:
    """Base class of the placeholders: records the arguments of the call and the state that follows."""

    def __init__(self, *args: Any) -> None:
        self.args, self.state = args, None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def build(self, done: _Done) -> Any:
        raise _Refused(f"a bare {type(self).__name__.strip('_').lower()}")


class _Kind(_Note):
    """``numpy.ndarray`` as a type, the first argument of ``_reconstruct``."""


class _Dtype(_Note):
    """``numpy.dtype``: args (code, align, copy), state (version, byte order, ...); only part of an array."""

    def read(self) -> np.dtype[Any]:
        code = self.args[0] if self.args else None
        order = self.state[1] if isinstance(self.state, tuple) and len(self.state) > 1 else "="
        if not isinstance(code, str) or order not in _BYTE_ORDERS:
            raise _Refused("a dtype that is not plain")
        dtype = np.dtype(code)
        if dtype.kind not in "biuf" or dtype.shape or dtype.names:
            raise _Refused(f"an array of dtype {code!r}")
        return dtype.newbyteorder(_BYTE_ORDERS[order])


class _Array(_Note):
    """``_reconstruct``: the state is (version, shape, dtype, Fortran order?, bytes)."""

    def build(self, done: _Done) -> np.ndarray[Any, Any]:
        if not isinstance(self.state, tuple) or len(self.state) != 5:
            raise _Refused("an array without contents")
        _, shape, dtype, fortran, content = self.state
        if not isinstance(dtype, _Dtype) or not isinstance(shape, tuple):
            raise _Refused("an array of unknown kind")
        if any(type(length) is not int or length < 0 for length in shape):
            raise _Refused("an array of unknown shape")
        kind, data = dtype.read(), _as_bytes(content)
        flat = np.frombuffer(data, kind).astype(kind.newbyteorder("="))
        return flat.reshape(shape, order="F" if fortran else "C")


class _Scalar(_Note):
    """``numpy.core.multiarray.scalar``: args (dtype, bytes)."""

    def build(self, done: _Done) -> int | float | bool:
        if len(self.args) != 2 or not isinstance(self.args[0], _Dtype):
            raise _Refused("a scalar of unknown kind")
        kind, data = self.args[0].read(), _as_bytes(self.args[1])
        if len(data) != kind.itemsize:
            raise _Refused("a scalar of the wrong length")
        value: int | float | bool = np.frombuffer(data, kind)[0].item()
        return value


class _Csr(_Note):
    """``scipy.sparse.csr_matrix``: the state is its ``__dict__``."""

    def build(self, done: _Done) -> Any:
        parts = ("data", "indices", "indptr", "_shape")
        if not isinstance(self.state, dict) or not set(parts) <= self.state.keys():
            raise _Refused("a sparse matrix without contents")
        data, indices, indptr, shape = (_built(self.state[part], done) for part in parts)
        if not all(isinstance(part, np.ndarray) for part in (data, indices, indptr)):
            raise _Refused("a sparse matrix without arrays")
        if not isinstance(shape, tuple) or len(shape) != 2:
            raise _Refused("a sparse matrix of unknown shape")
        if not all(type(length) is int and 0 <= length < 2**31 for length in shape):
            raise _Refused("a sparse matrix of impossible shape")
        check_csr(indptr, indices, data, shape)
        return sp.csr_matrix((data, indices, indptr), shape=shape)


class _Dict(_Note):
    """``collections.defaultdict``, without its default."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.items: dict[Any, Any] = {}

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items[key] = value

    def build(self, done: _Done) -> dict[Any, Any]:
        return {key: _built(value, done) for key, value in self.items.items()}


class _Encoded(_Note):
    """Bytes as Python 3 writes them in old protocols: ``_codecs.encode(text, "latin1")``, or ``bytes()``."""

    def build(self, done: _Done) -> bytes:
        if not self.args:
            return b""
        if len(self.args) != 2 or not isinstance(self.args[0], str) or self.args[1] != "latin1":
            raise _Refused("text in an unknown encoding")
        return self.args[0].encode("latin-1")


_KNOWN: dict[tuple[str, str], type] = {
    ("numpy", "ndarray"): _Kind,
    ("numpy", "dtype"): _Dtype,
    ("collections", "defaultdict"): _Dict,
    **{
        (module, name): stand_in
        for module in ("__builtin__", "builtins")
        for name, stand_in in (("list", list), ("dict", dict), ("bytes", _Encoded))
    },
    **{
        (f"{module}.multiarray", name): stand_in
        for module in ("numpy.core", "numpy._core")
        for name, stand_in in (("_reconstruct", _Array), ("scalar", _Scalar))
    },
    **{(f"scipy.sparse.{module}", "csr_matrix"): _Csr for module in ("csr", "_csr")},
    ("_codecs", "encode"): _Encoded,
}
"""The names a pickle may use, and their placeholders."""


_UNWANTED = frozenset(
    pickle.BYTEARRAY8 + pickle.NEXT_BUFFER + pickle.READONLY_BUFFER + pickle.INST + pickle.OBJ
    + pickle.EXT1 + pickle.EXT2 + pickle.EXT4 + pickle.PERSID + pickle.BINPERSID
)  # fmt: skip
"""Opcodes that plain numbers never need: buffers of arbitrary length, objects from elsewhere."""


class _Reader(pickle._Unpickler):
    """An unpickler that knows only the names in ``_KNOWN``.

    It is based on the Python implementation on purpose: the C implementation allocates memory up to the
    highest memo index in the file, so that seven bytes can claim gigabytes.
    """

    dispatch: ClassVar[dict[int, Callable[[pickle.Unpickler], None]]] = {
        code: action for code, action in pickle._Unpickler.dispatch.items() if code not in _UNWANTED
    }

    def find_class(self, module: str, name: str) -> type:
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise _Refused(f"{module}.{name}") from None


def _as_bytes(content: Any) -> bytes:
    """Return the bytes of an array; Python 2 wrote them as a string."""
    if isinstance(content, _Encoded):
        content = content.build({})
    if isinstance(content, str):
        return content.encode("latin-1")
    if not isinstance(content, bytes):
        raise _Refused("an array whose contents are not bytes")
    return content


def _built(value: Any, done: _Done) -> Any:
    """Replace all placeholders in plain containers by the objects they describe."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if id(value) not in done:
        done[id(value)] = _build_anew(value, done)
    return done[id(value)]


def _build_anew(value: Any, done: _Done) -> Any:
    if isinstance(value, _Note):
        return value.build(done)
    if isinstance(value, list | tuple):
        return type(value)(_built(item, done) for item in value)
    if isinstance(value, dict):
        return {key: _built(item, done) for key, item in value.items()}
    raise _Refused(f"a {getattr(value, '__name__', type(value).__name__)}")


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
