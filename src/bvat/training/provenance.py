"""What a result depends on: the graph and the versions of the software."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from typing import Any

from bvat._version import __version__
from bvat.graph import Graph


def digest(content: Any, length: int = 20) -> str:
    """Return a short digest of plain values, the same on every machine."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:length]


def graph_fingerprint(graph: Graph) -> str:
    """Return a digest of features, edges, labels and splits; a part has that of the whole graph."""
    known: str | None = getattr(graph, "fingerprint", None)
    if known is not None:
        return known
    found = hashlib.sha256()
    parts = [graph.adjacency.crow, graph.adjacency.col, graph.adjacency.values, graph.labels]
    parts += [graph.train, graph.val, graph.test]
    parts += graph.features.tensors()
    for part in parts:
        found.update(str(tuple(part.shape)).encode())
        found.update(part.detach().cpu().contiguous().numpy().data)
    return found.hexdigest()


def about_graph(graph: Graph) -> dict[str, Any]:
    """Return what a report says about a data set."""
    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "classes": graph.num_classes,
        "train": len(graph.train),
        "val": len(graph.val),
        "test": len(graph.test),
        "validation": graph.validation,
    }


def package_versions(packages: Iterable[str]) -> dict[str, str | None]:
    """Return the versions of bvat, Python and ``packages``; None for a package that is not installed."""
    found: dict[str, str | None] = {"bvat": __version__, "python": platform.python_version()}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


@cache
def versions() -> dict[str, str | None]:
    """Return the versions of everything that numbers depend on, and the platform."""
    system = f"{platform.system()} {platform.machine()}"
    return {**package_versions(("torch", "numpy", "scipy")), "platform": system}
