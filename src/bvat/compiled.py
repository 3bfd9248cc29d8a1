"""Loops that cannot be written as a few tensor operations, compiled by numba on their first call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


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
        try:
            import numba
        except ImportError:  # pragma: no cover
            return self.python
        try:
            kernel: Callable[..., Any] = numba.njit(cache=True)(self.python)
        except RuntimeError:  # no folder to keep machine code in
            kernel = numba.njit(self.python)
        return kernel
