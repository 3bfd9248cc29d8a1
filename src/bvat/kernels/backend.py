"""Decides what runs compiled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def plain() -> Iterator[None]:
    """Run without compiled twins."""
    yield
