"""Machine code that is kept on disk between runs.

numba's own cache trusts its files: an empty or damaged one, or a full disk, ends the program, and two
processes that compile different signatures at once can get each other's code. Here every signature has a file
of its own, which starts with the sha256 of the rest; whatever cannot be read or written is compiled again.
"""

from __future__ import annotations

import hashlib
import pickle
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache, NullCache
from numba.core.serialize import dumps

_DIGEST = 32


class KeptCode(NullCache):
    """The compiled versions of one function, in the folder that numba chooses (see ``NUMBA_CACHE_DIR``).

    ``tell`` is called with the name of the function before it is compiled, and with "" afterwards.
    """

    def __init__(self, function: Callable[..., Any], tell: Callable[[str], None]) -> None:
        self._name, self._tell = function.__name__, tell
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
        self._tell(self._name)
        return None

    def save_overload(self, sig: Any, cres: Any) -> None:
        """Keep what was compiled for a signature, if that is possible."""
        self._tell("")
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
    """Return a digest of all that machine code depends on: the sources here, the function's file, numba."""
    found = hashlib.sha256(numba.__version__.encode())
    for path in [*sorted(Path(__file__).parent.glob("*.py")), Path(file)]:
        found.update(path.read_bytes())
    return found.hexdigest()
