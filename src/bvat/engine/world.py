"""The engine of this process, while training still asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bvat.engine.compiled.engine import DEFAULT_ENGINE
from bvat.engine.tensor import TensorEngine

_current: TensorEngine = DEFAULT_ENGINE


def current() -> TensorEngine:
    """Return the engine of this process."""
    return _current


def enter(engine: TensorEngine) -> None:
    """Make an engine the current one for the rest of this process."""
    global _current
    _current = engine


@contextmanager
def within(engine: TensorEngine) -> Iterator[None]:
    """Make an engine the current one inside the block."""
    global _current
    before, _current = _current, engine
    try:
        yield
    finally:
        _current = before
