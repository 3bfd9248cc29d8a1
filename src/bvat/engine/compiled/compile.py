"""Functions on numpy arrays that numba compiles when they are first called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

_listeners: list[Callable[[str], None]] = []


@cache
def has_numba() -> bool:
    """Return whether numba can compile: it can be imported, and ``NUMBA_DISABLE_JIT`` is not set."""
    if find_spec("numba") is None:
        return False
    try:
        import numba
    except ImportError:  # it refuses versions of numpy that it does not know
        return False
    return not getattr(numba.config, "DISABLE_JIT", False)


@contextmanager
def when_compiling(listener: Callable[[str], None]) -> Iterator[None]:
    """Call ``listener`` inside the block with the name of each function that is compiled, and "" after it."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def tell(name: str) -> None:
    """Tell the listeners that a function is compiled now; "" when it is done."""
    for listener in _listeners:
        listener(name)


def compile_and_keep(function: Callable[..., Any], **options: Any) -> Any:
    """Compile a function with numba on its first call; keep the machine code on disk where possible."""
    import numba

    from bvat.engine.compiled.kept_code import KeptCode

    dispatcher = numba.njit(**options)(function)
    dispatcher._cache = KeptCode(function, tell)
    return dispatcher


class Compiled:
    """A loop that has no equivalent in a few tensor operations, compiled when it is first called.

    numba is imported only then, so that commands that need no kernel start fast. ``python`` is the function
    itself, for tests and for installations without numba. ``options`` are those of ``numba.njit``.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self.python, self._options = function, options
        self._kernel: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function."""
        if self._kernel is None:
            self._kernel = compile_and_keep(self.python, **self._options) if has_numba() else self.python
        return self._kernel(*arguments)
