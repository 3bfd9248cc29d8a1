"""Read ``.npz`` and ``.npy`` files of others: nothing is executed, and bombs are refused."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

MARGIN, RATIO = 2**28, 100
"""An archive may unpack to ``MARGIN`` bytes plus ``RATIO`` times its own size: more is a bomb."""


class ObjectArray(ValueError):
    """An array holds Python objects, which can run code when they are loaded; ``str`` is its name."""


def read_npy(path: Path, *, mapped: bool = False) -> Any:
    """Return the array in an ``.npy`` file, memory-mapped if asked for; errors as for :func:`read_npz`."""
    if mapped:
        return _read_array(path, path.stem, partial(np.lib.format.open_memmap, mode="c"))
    with path.open("rb") as file:
        return _read_array(file, path.stem)


def read_npz(content: bytes, skip: Collection[str] = ()) -> dict[str, Any]:
    """Return the arrays in the content of an ``.npz`` file; those in ``skip`` may hold Python objects.

    ObjectArray if another array does, ValueError that says why if the content cannot be read.
    """
    arrays = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(member.file_size for member in archive.infolist()) > MARGIN + RATIO * len(content):
                raise ValueError("it unpacks to far more than its own size")
            for member in archive.namelist():
                name = member.removesuffix(".npy")
                try:
                    with archive.open(member) as file:
                        arrays[name] = _read_array(file, name)
                except ObjectArray:
                    if name not in skip:
                        raise
    except ValueError:
        raise
    except Exception as fault:  # zlib, lzma, passwords, unknown compression, ...
        raise ValueError(type(fault).__name__) from None
    return arrays


_READ = partial(np.lib.format.read_array, allow_pickle=False)


def _read_array(file: Any, name: str, read: Callable[[Any], Any] = _READ) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about headers that Python 2 wrote, or strange text in them
            return read(file)
    except Exception as fault:  # also a deep header, or one that claims more than there is memory
        if "Object arrays" in str(fault) or "Python objects" in str(fault):
            raise ObjectArray(name) from None
        raise ValueError(f"array {name!r}: {str(fault) or type(fault).__name__}") from None


def array_names(path: Path) -> set[str]:
    """Return the names of the arrays in an ``.npz`` file; none if it is not one."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist()}
    except Exception:  # the reader reports what is wrong with the file
        return set()
