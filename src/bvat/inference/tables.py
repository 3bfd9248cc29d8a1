"""Predictions as CSV."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import compress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bvat.data.files import csv_text, write_atomic
from bvat.errors import DataError, SettingsError
from bvat.graph import Graph
from bvat.graph.targets import OneClass


def node_id(graph: Graph, node: int) -> str:
    return str(node) if graph.node_names is None else graph.node_names[node]


def predictions_csv(
    graph: Graph,
    class_names: Sequence[str],
    probabilities: Tensor,
    targets: OneClass,
    member: NDArray[np.bool_] | None = None,
) -> str:
    """Return ``id,predicted,confidence,p_CLASS,...``, one line per node; with sets a column ``set`` too.

    Shapes: probabilities (N, C), member (N, C), which classes are in the set of a node.
    """
    p = probabilities.cpu()
    columns: dict[str, Iterable[str]] = {
        "id": [node_id(graph, node) for node in range(len(p))],
        "predicted": targets.names(p, class_names),
        "confidence": map(short_number, targets.confidence(p).tolist()),
    }
    if member is not None:
        columns["set"] = [" | ".join(compress(class_names, inside)) for inside in member]
    for name, values in zip(class_names, p.T.tolist(), strict=True):
        columns[f"p_{name}"] = map(short_number, values)
    return csv_text(tuple(columns), zip(*columns.values(), strict=True))


def check_writable(*paths: Path | None) -> None:
    """Raise SettingsError if a file certainly cannot be written: before the work, not after it."""
    for path in filter(None, paths):
        if path.is_dir():
            raise SettingsError(f"{path} is a folder: give the name of a file")
        blocked = next((p for p in path.parents if p.exists() and not p.is_dir()), None)
        if blocked is not None:
            raise SettingsError(
                f"{path} cannot be written, because {blocked} is a file: choose another location"
            )


def write_text(path: Path, text: str | bytes) -> None:
    """Write a file atomically: if writing fails, the previous content stays."""
    try:
        write_atomic(path, text, special=True)
    except BrokenPipeError:  # standard output was closed by its reader
        raise
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}): choose another location") from None


def short_number(value: float) -> str:
    """Return six significant digits, or nothing if the value is not finite."""
    return f"{value:.6g}" if math.isfinite(value) else ""
