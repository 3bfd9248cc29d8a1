"""Readers for users' own files; :func:`read` picks the reader for the format of a path."""

from __future__ import annotations

from pathlib import Path

from bvat.data.npz import array_names
from bvat.data.readers.benchmark import EDGE_LIST, read_benchmark
from bvat.data.readers.folder import ENDINGS, is_graph_folder, read_folder, read_matrix, read_table
from bvat.data.readers.matrices import read_arrays
from bvat.data.splits import ReadOptions
from bvat.data.store import load_graph
from bvat.errors import DataError, shown
from bvat.graph import Graph

__all__ = ["ACCEPTED", "ReadOptions", "read"]

ACCEPTED = (
    "a folder with nodes.csv and edges.csv, a table of nodes (.csv, .csv.gz, .parquet), a feature matrix "
    "(.npy, .npz) beside labels.csv, or an .npz file of a graph benchmark or of bvat.data.save_graph"
)
"""The accepted paths, for error messages."""


def read(path: Path, options: ReadOptions | None = None) -> Graph:
    """Return the graph in a file or folder.

    DataError if the format is unknown, GraphError if the content is invalid.
    """
    options, name = options or ReadOptions(), path.name.lower()
    part = name.startswith(("nodes.", "edges.", "features.")) and is_graph_folder(path.parent)
    if path.is_dir() and is_graph_folder(path):
        return read_folder(path, options)
    if path.is_file() and not part and name.endswith(ENDINGS):
        return read_table(path, options)
    if path.is_file() and not part and name.endswith((".npz", ".npy")):
        return _read_archive(path, options)
    hint = f" (but the folder {path.parent} can)" if part else ""
    raise DataError(f"{path} cannot be read as a graph{hint}: give {ACCEPTED}")


def _read_archive(path: Path, options: ReadOptions) -> Graph:
    stored = array_names(path)
    if path.suffix.lower() == ".npy" or {"indptr", "format"} <= stored:  # of scipy.sparse.save_npz
        return read_matrix(path, options)
    if "adj_indptr" in stored or stored >= EDGE_LIST:
        return read_benchmark(path, options)
    if stored and "about" not in stored:
        read_arrays(path)  # reports what cannot be read
        some = ", ".join(shown(name) for name in sorted(stored)[:5])
        raise DataError(f"{path} holds the arrays {some} but no graph: give {ACCEPTED}")
    options.refuse(str(path))
    return load_graph(path)
