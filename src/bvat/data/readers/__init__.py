"""Readers of users' own files: :func:`read` looks at the path and hands it to the reader of its format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bvat.data.store import load_graph
from bvat.errors import DataError
from bvat.graph import Graph

READERS: dict[str, Callable[[Path], Graph]] = {".npz": load_graph}
"""File ending -> reader. A new format is a module in this folder and a line here."""

ACCEPTED = "an .npz file written by bvat.data.save_graph"
"""What paths are accepted, for messages."""


def read(path: Path) -> Graph:
    """Return the graph in a file; raises DataError when no reader knows its format."""
    reader = READERS.get(path.suffix.lower()) if path.is_file() else None
    if reader is None:
        raise DataError(f"{path} cannot be read as a graph: give {ACCEPTED}")
    return reader(path)
