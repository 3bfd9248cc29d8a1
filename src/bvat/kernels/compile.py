"""Functions on numpy arrays that numba compiles when they are first called."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any


@cache
def has_numba() -> bool:
    """Return whether numba is installed; it is not imported for that."""
    return find_spec("numba") is not None


def compile_and_keep(function: Callable[..., Any], **options: Any) -> Any:
    """Compile a function with numba on its first call; keep the machine code on disk where possible."""
    import numba

    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder to keep machine code in
        return numba.njit(**options)(function)


class Compiled:
    """A loop that has no equivalent in a few tensor operations, compiled when it is first called.

    numba is imported only then, so that commands that need no kernel start fast. ``python`` is the function
    itself, for tests and for installations without numba.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.python = function
        self._kernel: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function."""
        if self._kernel is None:
            self._kernel = compile_and_keep(self.python) if has_numba() else self.python
        return self._kernel(*arguments)
