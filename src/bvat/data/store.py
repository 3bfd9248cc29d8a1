"""Save graphs as plain ``.npz`` files: arrays and one JSON text, no pickle."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bvat.data.checksums import UNSEALED, seal, verify
from bvat.data.files import write_atomic
from bvat.data.npz import read_npz
from bvat.data.splits import PARTS
from bvat.engine.matrix import check_csr
from bvat.engine.sparse import SparseMatrix, SymmetricMatrix
from bvat.errors import DataError, GraphError
from bvat.graph import DenseMatrix, Graph

FORMAT = 1
"""Version of the file format and of the readers of raw files; increasing it invalidates the cache."""
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError)
"""What the content of a damaged file can lead to."""


def save_graph(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Save a graph as an ``.npz`` file, atomically; :func:`load_graph` and :func:`bvat.load` read it.

    Example:
        >>> bvat.data.save_graph(bvat.synthetic_graph(), "mine.npz")
        >>> bvat.load("mine.npz")
        Graph('synthetic', 1000 nodes, 4000 edges, 200 features, 4 classes, 80/306/614 train/val/test)
    """
    target = Path(path)
    if target.suffix != ".npz":
        raise DataError(f"{target} does not end in .npz: add the ending")
    if not target.parent.is_dir():
        raise DataError(f"the folder {target.parent} does not exist: create it first")
    try:
        write_atomic(target, graph_to_bytes(graph), special=True)
    except OSError as fault:
        raise DataError(f"{target} cannot be written ({fault.strerror}): choose another place") from None


def load_graph(path: str | os.PathLike[str]) -> Graph:
    """Read a graph written by :func:`save_graph`; nothing in the file is executed."""
    source = Path(path)
    try:
        content = source.read_bytes()
    except OSError as fault:
        raise DataError(f"{source} cannot be read ({fault.strerror}): check the path") from None
    return graph_from_bytes(content, str(source))


def graph_to_bytes(graph: Graph) -> bytes:
    """Return the content of the ``.npz`` file of a graph."""
    about = {
        "format": FORMAT,
        "name": graph.name,
        "class_names": graph.class_names,
        "node_names": graph.node_names,
        "validation": graph.validation,
        "repairs": dict(graph.repairs),
        "notes": graph.notes,
        "recipe": dict(graph.recipe),
        "features_shape": tuple(graph.features.shape),
    } | ({"directed": True} if graph.directed else {})
    arrays = {
        "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
        "labels": graph.labels.cpu().numpy(),
    }
    arrays |= {split: getattr(graph, split).cpu().numpy() for split in PARTS}
    if graph.splits is not None:
        arrays["splits"] = graph.splits.cpu().numpy()
    if graph.edge_attr is not None:
        arrays["edge_attr"] = graph.edge_attr.cpu().numpy()
    arrays |= _csr_arrays("adjacency", graph.adjacency)
    if isinstance(graph.features, SparseMatrix):
        arrays |= _csr_arrays("features", graph.features)
    else:
        arrays["features"] = graph.features.to_scipy()
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = UNSEALED.encode()
    return seal(buffer.getvalue())


def graph_from_bytes(content: bytes, name: str) -> Graph:
    """Build a graph from the content of its ``.npz`` file; ``name`` is used in error messages.

    A file without a checksum, written by another program, is accepted.
    """
    correct = verify(content)
    if correct is False or (correct is None and _has_comment(content)):
        raise DataError(
            f"{name} is damaged (its checksum is wrong): restore it, or write it again with "
            "bvat.data.save_graph"
        )
    try:
        arrays = read_npz(content)
        about = json.loads(arrays["about"].tobytes())
        if about["format"] != FORMAT:
            raise DataError(
                f"{name} has format {about['format']}, this version reads {FORMAT}: save it again"
            )
        return _assemble(arrays, about)
    except GraphError as fault:
        raise DataError(f"{name} does not contain a valid graph ({fault})") from None
    except _DAMAGE as fault:
        raise DataError(
            f"{name} is damaged or not a graph of bvat ({type(fault).__name__}): "
            "write it with bvat.data.save_graph"
        ) from None


def _has_comment(content: bytes) -> bool:
    """Return whether the archive says that it ends with a comment, whatever became of its text."""
    end = content.rfind(b"PK\5\6")
    return end >= 0 and content[end + 20 : end + 22] != b"\0\0"


def _csr_arrays(name: str, matrix: SparseMatrix) -> dict[str, Any]:
    return {f"{name}.{part}": getattr(matrix, part).cpu().numpy() for part in ("crow", "col", "values")}


def _assemble(arrays: dict[str, Any], about: dict[str, Any]) -> Graph:
    size = len(arrays["labels"])
    rows, columns = about["features_shape"]
    for name in ("labels", *PARTS):
        if arrays[name].dtype.kind not in "iu":
            raise GraphError(f"its {name} are not whole numbers: write it with bvat.data.save_graph")
    adjacency, directed = _read_csr(arrays, "adjacency", (size, size)), bool(about.get("directed"))
    dense = DenseMatrix(torch.from_numpy(arrays["features"])) if "features" in arrays else None
    return Graph(
        features=dense or _read_csr(arrays, "features", (rows, columns)),
        adjacency=adjacency if directed else SymmetricMatrix.of(adjacency),
        **{name: torch.from_numpy(arrays[name].astype(np.int64)) for name in ("labels", *PARTS)},
        class_names=tuple(about["class_names"]),
        name=about["name"],
        node_names=None if about["node_names"] is None else tuple(about["node_names"]),
        validation=about["validation"],
        repairs={str(kind): int(count) for kind, count in about["repairs"].items()},
        notes=tuple(about.get("notes", ())),
        recipe=dict(about.get("recipe", {})),
        splits=torch.from_numpy(arrays["splits"]) if "splits" in arrays else None,
        directed=directed,
        edge_attr=torch.from_numpy(arrays["edge_attr"]) if "edge_attr" in arrays else None,
    )


def _read_csr(arrays: dict[str, Any], name: str, shape: tuple[int, int]) -> SparseMatrix:
    """Return a matrix after checking its row pointers and columns, which torch does not check."""
    crow, col, values = (arrays[f"{name}.{part}"] for part in ("crow", "col", "values"))
    if values.dtype.kind != "f" or max(shape) >= 2**31:
        raise ValueError("values of a wrong type, or too many of them")
    check_csr(crow, col, values, shape, ordered=True)
    return SparseMatrix(
        torch.from_numpy(crow.astype(np.int32)),
        torch.from_numpy(col.astype(np.int32)),
        torch.from_numpy(values),
        shape,
    )
