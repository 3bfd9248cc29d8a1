"""Folders of Parquet files with every irregularity that a graph may have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet


def columns(
    nodes: int = 90, edges: int = 300, *, features: int = 3, gap: int = 1, text: bool = False, seed: int = 0
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the columns of nodes and edges: loops, duplicates, both directions, weights of 0, no label."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(nodes) * gap - 7
    source, target = rng.integers(0, nodes, (2, edges))
    source, target = (
        np.r_[source, target[:50], source[:50], np.arange(5)],
        np.r_[target, source[:50], target[:50], np.arange(5)],
    )
    weight = rng.random(source.size)
    weight[::17] = 0

    def named(rows: Any) -> Any:
        return [f"n {k}" for k in ids[rows]] if text else ids[rows]

    labels = [["a", "b", "c", ""][k] for k in rng.integers(0, 4, nodes)]
    table: dict[str, Any] = {"id": named(np.arange(nodes)), "label": labels}
    table |= {f"x{k}": rng.normal(size=nodes) * 10 for k in range(features)}
    return table, {"source": named(source), "target": named(target), "weight": weight}


def write_parquet(folder: Path, nodes: Any, edges: Any) -> Path:
    """Write a folder; None is left out."""
    folder.mkdir(exist_ok=True)
    for name, table in (("nodes", nodes), ("edges", edges)):
        if table is not None:
            parquet.write_table(pa.table(table), folder / f"{name}.parquet", row_group_size=64)
    return folder
