"""Pages of commands, which are written last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from bvat.errors import printable


@contextmanager
def keep_results() -> Iterator[None]:
    """Around writing a page: an error there is a note, and the results that the page shows are not lost."""
    try:
        yield
    except Exception as error:
        typer.echo(printable(f"note: the page was not written ({type(error).__name__}: {error})"), err=True)
