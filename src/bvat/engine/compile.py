"""Loops on numpy arrays that numba compiles on their first call, and their machine code on disk.

numba's own cache trusts its files: an empty or damaged one, or a full disk, ends the program, and two
processes that compile different signatures at once can get each other's code. Here every signature has a file
of its own, which starts with the sha256 of the rest; whatever cannot be read or written is compiled again.

numba is imported only when it is needed: commands that need no loop start fast.
"""

from __future__ import annotations

import hashlib
import pickle
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_listeners: list[Callable[[str], None]] = []
_DIGEST = 32


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

    dispatcher = numba.njit(**options)(function)
    if dispatcher is function:  # NUMBA_DISABLE_JIT
        return function
    dispatcher._cache = KeptCode(function)
    compiler, config = dispatcher._compiler, vars(numba)["config"]
    compile_it = compiler.compile

    def compile_with_vectors(*signature: Any) -> Any:
        # numba leaves neighbouring scalar operations as they are unless told; it holds its lock here
        before, config.SLP_VECTORIZE = config.SLP_VECTORIZE, 1
        try:
            return compile_it(*signature)
        finally:
            config.SLP_VECTORIZE = before

    compiler.compile = compile_with_vectors
    return dispatcher


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function of a module that is imported only where numba is."""
    return compile_and_keep(function, error_model="numpy", nogil=True, fastmath=set())


def part(fastmath: Collection[str] = ()) -> Callable[[Callable[..., Any]], Any]:
    """Make a function a part of the compiled functions that call it: a call would cost more than its work.

    Without flags of its own a part would get those of its first caller: results would depend on the order in
    which callers are compiled, and so on what is kept on disk.
    """
    import numba

    return numba.njit(error_model="numpy", forceinline=True, fastmath=set(fastmath))


class Compiled:
    """A loop that has no equivalent in a few tensor operations, compiled when it is first called.

    ``python`` is the function itself, for tests and for installations without numba. ``options`` are those of
    ``numba.njit``.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self.python, self._options = function, options
        self._kernel: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        if self._kernel is None:
            self._kernel = compile_and_keep(self.python, **self._options) if has_numba() else self.python
        return self._kernel(*arguments)


class KeptCode:
    """The compiled versions of one function, in the folder that numba chooses (see ``NUMBA_CACHE_DIR``)."""

    def __init__(self, function: Callable[..., Any]) -> None:
        from numba.core.caching import FunctionCache

        self._name = function.__name__
        self._numba: Any = None
        with suppress(Exception):  # there is no folder to keep machine code in
            self._stamp = source_stamp(function.__code__.co_filename)
            self._numba = FunctionCache(function)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what was compiled for a signature; None if it has to be compiled."""
        target_context.refresh()
        with suppress(Exception):  # missing, damaged, or of another version
            content = self._path(sig, target_context.codegen()).read_bytes()
            if hashlib.sha256(content[_DIGEST:]).digest() == content[:_DIGEST]:
                stamp, data = pickle.loads(content[_DIGEST:])  # noqa: S301 (as numba does)
                if stamp == self._stamp:
                    return self._numba._impl.rebuild(target_context, data)
        tell(self._name)
        return None

    def save_overload(self, sig: Any, cres: Any) -> None:
        """Keep what was compiled for a signature, if that is possible."""
        from numba.core.serialize import dumps

        tell("")
        with suppress(Exception):
            implementation, path = self._numba._impl, self._path(sig, cres.codegen)
            if not implementation.check_cachable(cres):
                return
            implementation.locator.ensure_cache_path()
            content = dumps((self._stamp, implementation.reduce(cres)))
            temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
            try:
                temporary.write_bytes(hashlib.sha256(content).digest() + content)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)

    def _path(self, sig: Any, codegen: Any) -> Path:
        key = repr(self._numba._index_key(sig, codegen))
        name = hashlib.sha256(key.encode()).hexdigest()[:16]
        return Path(self._numba.cache_path) / f"{self._numba._impl.filename_base}.{name}.code"


@cache
def source_stamp(file: str) -> str:
    """Return a digest of all that machine code depends on: the loops, the function's file, numba."""
    import numba

    found = hashlib.sha256(numba.__version__.encode())
    for path in (Path(__file__), Path(__file__).with_name("loops.py"), Path(file)):
        found.update(path.read_bytes())
    return found.hexdigest()
