"""Read ``.npz`` and ``.npy`` files of others: nothing is executed, and no memory is given to mere claims."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Collection
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

MARGIN, RATIO = 2**28, 100
"""An archive may unpack to ``MARGIN`` bytes plus ``RATIO`` times its own size: more is a bomb."""
_CHUNK = 2**20


class ObjectArray(ValueError):
    """An array holds Python objects, which can run code when they are loaded; ``str`` is its name."""


def read_npy(path: Path) -> Any:
    """Return the array in an ``.npy`` file; errors as for :func:`read_npz`."""
    try:
        with path.open("rb") as file:
            return _read_array(file, path.stat().st_size, path.stem, optional=False)
    except (ValueError, OSError):
        raise
    except Exception as fault:  # deep headers, ...
        raise ValueError(type(fault).__name__) from None


def read_npz(content: bytes, skip: Collection[str] = ()) -> dict[str, Any]:
    """Return the arrays in the content of an ``.npz`` file; those in ``skip`` may hold Python objects.

    ObjectArray if another array does, ValueError that says why if the content cannot be read.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > MARGIN + RATIO * len(content):
                raise ValueError("it unpacks to far more than its own size")
            arrays = {}
            for member in members:
                name = member.filename.removesuffix(".npy")
                with archive.open(member) as file:
                    array = _read_array(file, member.file_size, name, name in skip)
                if array is not None:
                    arrays[name] = array
            return arrays
    except ValueError:
        raise
    except Exception as fault:  # zlib, lzma, passwords, unknown compression, deep headers, ...
        raise ValueError(type(fault).__name__) from None


def array_names(path: Path) -> set[str]:
    """Return the names of the arrays in an ``.npz`` file; none if it is not one."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist()}
    except Exception:  # the reader reports what is wrong with the file
        return set()


def _read_array(file: Any, size: int, name: str, optional: bool) -> Any:
    """Read one array after comparing the size that its header claims with the size of the member."""
    shape, fortran, dtype = _read_header(file)
    if dtype.hasobject:
        if optional:
            return None
        raise ObjectArray(name)
    if dtype.names or dtype.shape or not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError(f"array {name!r} has a shape or type that is not plain")
    if prod(shape) * dtype.itemsize > size:
        raise ValueError(f"array {name!r} is shorter than its header claims")
    array = np.empty(prod(shape), dtype)
    rest: Any = memoryview(array.view(np.uint8).data if array.size else b"")
    while rest:
        chunk = file.read(min(len(rest), _CHUNK))
        if not chunk:
            raise ValueError(f"array {name!r} is shorter than its header claims")
        rest[: len(chunk)] = chunk
        rest = rest[len(chunk) :]
    file.read(1)  # at the end of the member, its checksum is compared
    return array.astype(dtype.newbyteorder("="), copy=False).reshape(shape, order="F" if fortran else "C")


def _read_header(file: Any) -> tuple[tuple[int, ...], bool, Any]:
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError("an array has an unknown version")
    read = np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about headers that Python 2 wrote, or strange text in them
        return read(file)
