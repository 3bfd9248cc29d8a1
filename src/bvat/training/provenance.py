"""What a result depends on: the graph, the code and the versions of the software."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

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
    parts += [] if graph.edge_attr is None else [graph.edge_attr]
    for part in parts:
        found.update(str(tuple(part.shape)).encode())
        for piece in torch.split(part.detach().flatten(), 2**20):  # it may be larger than memory
            found.update(piece.cpu().contiguous().numpy().data)
    if graph.directed:
        found.update(b"directed")
    return found.hexdigest()


def about_graph(graph: Graph) -> dict[str, Any]:
    """Return what a report says about a data set."""
    sizes = {name: getattr(graph, f"num_{name}") for name in ("nodes", "edges", "features", "classes")}
    splits = {name: len(getattr(graph, name)) for name in ("train", "val", "test")}
    return {**sizes, **splits, "validation": graph.validation}


@cache
def code() -> dict[str, str | None]:
    """Return what identifies the code: its version, commit (None outside a checkout) and source digest."""
    package = Path(__file__).parents[1]
    return {"bvat": __version__, "commit": _commit(package), "source": source_digest(package)}


def source_digest(package: Path, length: int = 16) -> str:
    """Return a digest of the names and contents of all Python and TOML files in a folder."""
    found = hashlib.sha256()
    for path in sorted((*package.rglob("*.py"), *package.rglob("*.toml"))):
        content = path.read_bytes()
        found.update(f"{path.relative_to(package).as_posix()}\n{len(content)}\n".encode() + content)
    return found.hexdigest()[:length]


def _commit(package: Path) -> str | None:
    if not any((parent / ".git").exists() for parent in package.parents):
        return None

    def git(*words: str) -> str:
        command = ["git", "-C", str(package), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "_version.py")  # fails for a package installed into a checkout
        return git("rev-parse", "HEAD")
    except (OSError, subprocess.SubprocessError):
        return None


def sources(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the digests of the sources that results of seeds were made with, each once."""
    return sorted({result.get("versions", {}).get("source", "unknown") for result in results})


def package_versions(packages: Iterable[str]) -> dict[str, str | None]:
    """Return the versions of bvat, Python and ``packages``; None for a package that is not installed.

    The code of bvat is identified as by :func:`code`.
    """
    found = {**code(), "python": platform.python_version()}
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
