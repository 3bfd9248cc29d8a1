"""Readers of users' own files: :func:`read` looks at the path and hands it to the reader of its format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bvat.data.readers.benchmark import read_benchmark
from bvat.data.readers.folder import is_graph_folder, read_folder
from bvat.data.readers.matrices import array_names
from bvat.data.readers.options import ReadOptions
from bvat.data.store import load_graph
from bvat.errors import DataError
from bvat.graph import Graph

__all__ = ["ACCEPTED", "ReadOptions", "read"]

ACCEPTED = (
    "an .npz file written by bvat.data.save_graph, an .npz file of a graph benchmark, or a folder with "
    "nodes.csv and edges.csv"
)
"""What paths are accepted, for messages."""


def read(path: Path, options: ReadOptions | None = None, like: Mapping[str, Any] | None = None) -> Graph:
    """Return the graph in a file or folder.

    Args:
        path: what there is.
        options: text column and split.
        like: ``graph.recipe`` of the graph a model was trained on, to get the same features and classes.

    Raises:
        DataError: no reader knows the format.
        GraphError: something in it is wrong; the message says where and what to do.
    """
    chosen = options or ReadOptions()
    if path.is_dir() and is_graph_folder(path):
        return read_folder(path, chosen, like)
    if path.is_file() and path.suffix.lower() == ".npz":
        if "adj_indptr" in array_names(path):
            return read_benchmark(path, chosen)
        chosen.refuse(str(path))
        return load_graph(path)
    hint = f" (the folder {path.parent} can)" if path.is_file() and is_graph_folder(path.parent) else ""
    raise DataError(f"{path} cannot be read as a graph{hint}: give {ACCEPTED}")
