"""Read the table of edges."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bvat.data.readers.table import Table, count_note, fault, find_column, require_columns
from bvat.errors import shown


def read_edges(table: Table, index: Mapping[str, int], nodes: Table, notes: list[str]) -> Any:
    """Return the edges as a COO matrix (N, N); ``index`` maps ids to the rows of the table ``nodes``."""
    ends = require_columns(table, "source", "target")
    weight = find_column(table, "weight")
    found: dict[str, list[NDArray[np.int64]]] = {name: [] for name in ends}
    weights: list[NDArray[np.float64]] = []
    for block in table.blocks(ends, [weight] if weight is not None else []):
        for name in ends:
            rows = np.fromiter(map(index.get, block.texts[name], repeat(-1)), dtype=np.int64)
            if rows.size and rows.min() < 0:
                row = int(np.argmin(rows >= 0))
                given = block.texts[name][row]
                problem = f"is not an id in {nodes.path.name}: add the node there or remove the edge"
                if given.strip() in index:
                    problem = "matches an id only without its leading or trailing spaces: remove them"
                raise fault(table, block.start + row, name, f"{shown(given)} {problem}")
            found[name].append(rows)
        if weight is not None:
            weights.append(_checked_weights(table, block.start, weight, block.numbers[:, 0]))
    source, target = (np.concatenate([np.zeros(0, np.int64), *found[name]]) for name in ends)
    values = np.concatenate([np.zeros(0), *weights]) if weight is not None else np.ones(source.size)
    count_note(notes, values == 0, "edges of weight 0 removed")
    unused = [name for name in table.names if name not in (*ends, weight)]
    if unused:
        notes.append(f"unused columns of {table.path.name}: {', '.join(shown(name) for name in unused[:6])}")
    return sp.coo_array((values, (source, target)), shape=(len(index), len(index)))


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
