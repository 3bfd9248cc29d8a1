"""Loops that cannot be written as a few tensor operations, compiled by numba on their first call."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor


@cache
def _numba_is_there() -> bool:
    return find_spec("numba") is not None


def usable(*tensors: Tensor) -> bool:
    """Tell whether the functions of :mod:`bvat.kernels` work on these tensors."""
    first = tensors[0]
    return (
        first.device.type == "cpu"
        and first.dtype in (torch.float32, torch.float64)
        and all(tensor.dtype == first.dtype and tensor.device == first.device for tensor in tensors)
        and _numba_is_there()
    )


def compile_and_keep(function: Callable[..., Any], **options: Any) -> Any:
    """Compile a function with numba on its first call; keep the machine code on disk where possible."""
    import numba

    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder to keep machine code in
        return numba.njit(**options)(function)


class Compiled:
    """A function on numpy arrays and numbers that is compiled when it is first called.

    numba is imported only then, so that commands that need no kernel start fast; the machine code is kept on
    disk where that is possible. ``python`` is the function itself, for tests and for where numba is missing.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.python = function
        self._kernel: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function."""
        if self._kernel is None:
            self._kernel = self._compile()
        return self._kernel(*arguments)

    def _compile(self) -> Callable[..., Any]:
        return compile_and_keep(self.python) if _numba_is_there() else self.python
