"""Read the edges file: two ids per row and optionally a weight."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bvat.data.readers.table import Table, fault, find_column, require_columns
from bvat.errors import shown


def read_edges(table: Table, index: Mapping[str, int], nodes: Table, notes: list[str]) -> Any:
    """Return the edges as a COO matrix (N, N), and append notes for the user to ``notes``."""
    ends = require_columns(table, "source", "target")
    weight = find_column(table, "weight")
    found: dict[str, list[NDArray[np.int64]]] = {name: [] for name in ends}
    weights: list[NDArray[np.float64]] = []
    for block in table.blocks(ends, [weight] if weight is not None else []):
        for name in ends:
            rows = np.fromiter(map(index.get, block.texts[name], repeat(-1)), dtype=np.int64)
            if rows.size and rows.min() < 0:
                row = int(np.argmin(rows >= 0))
                problem = _unknown_id(block.texts[name][row], index, nodes)
                raise fault(table, block.start + row, name, problem)
            found[name].append(rows)
        if weight is not None:
            weights.append(_checked_weights(table, block.start, weight, block.numbers[:, 0]))
    source, target = (np.concatenate([np.zeros(0, np.int64), *found[name]]) for name in ends)
    values = np.concatenate([np.zeros(0), *weights]) if weight is not None else np.ones(source.size)
    if not source.size:
        notes.append(f"{table.path.name} has no edges")
    zero = int((values == 0).sum())
    if zero:
        notes.append(f"edges of weight 0 removed: {zero:,}")
    unused = [name for name in table.names if name not in (*ends, weight)]
    if unused:
        notes.append(f"unused columns of {table.path.name}: {', '.join(shown(name) for name in unused[:6])}")
    return sp.coo_array((values, (source, target)), shape=(len(index), len(index)))


def _unknown_id(name: str, index: Mapping[str, int], nodes: Table) -> str:
    if name.strip() in index:
        return f"{shown(name)} matches an id only without its leading or trailing spaces: remove them"
    return f"{shown(name)} is not an id in {nodes.path.name}: add the node there or remove the edge"


def _checked_weights(
    table: Table, start: int, column: str, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Reject weights (n) that are negative, or so small that they vanish in float32."""
    bad = np.flatnonzero((weights < 0) | ((weights > 0) & (weights < 1e-30)))
    if bad.size:
        value = weights[bad[0]]
        problem = "negative: use positive weights" if value < 0 else "too small: use a larger unit"
        raise fault(table, start + int(bad[0]), column, f"the weight {value:g} is {problem}")
    return weights
