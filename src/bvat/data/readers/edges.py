"""Edges as a source gives them, and the table of edges: ends, weights and attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bvat.data.readers.features import unit_scale
from bvat.data.readers.node_table import unknown_id
from bvat.data.readers.table import ID_NAME, Table, fault, find_column, is_id, require_columns
from bvat.errors import GraphError, shown


@dataclass(frozen=True, eq=False)
class GivenEdges:
    """Edges before they are repaired.

    Shapes: matrix scipy (N, N), entry (i, j) is an edge from i to j; attributes (E, F), one row per stored
    entry in the order of COO, or None.
    """

    matrix: Any
    attributes: Any = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """How the attributes were made: part of ``graph.recipe``."""


def read_edges(
    table: Table, index: Mapping[str, int], nodes: Table, notes: list[str], like: Mapping[str, Any] | None
) -> GivenEdges:
    """Return the edges of a table; ``index`` maps ids to the rows of the table ``nodes``."""
    ends = require_columns(table, "source", "target")
    weight = find_column(table, "weight")
    weights = [] if weight is None else [weight]
    names = _attribute_columns(table, [*ends, *weights], like)
    found: dict[str, list[NDArray[np.int64]]] = {name: [] for name in ends}
    numbers: list[NDArray[np.float64]] = [np.zeros((0, len(names + weights)))]
    for block in table.blocks(ends, names + weights):
        for name in ends:
            found[name].append(_places(table, block, name, index, nodes))
        if weight is not None:
            checked_weights(table, block.start, weight, block.numbers[:, -1])
        numbers.append(block.numbers)
    source, target = (np.concatenate([np.zeros(0, np.int64), *found[name]]) for name in ends)
    every = np.concatenate(numbers)
    values = np.ones(source.size) if weight is None else every[:, -1]
    note_edges(table, int((values == 0).sum()), notes, names)
    matrix = sp.coo_array((values, (source, target)), shape=(len(index), len(index)))
    known = None if like is None else like.get("edge_attr")
    return GivenEdges(matrix, *_scaled(names, every[:, : len(names)], known, notes))


def _places(table: Table, block: Any, name: str, index: Mapping[str, int], nodes: Table) -> NDArray[np.int64]:
    """Return the numbers of the nodes that a block of rows names."""
    rows = np.fromiter(map(index.get, block.texts[name], repeat(-1)), dtype=np.int64)
    if rows.size and rows.min() < 0:
        row = int(np.argmin(rows >= 0))
        given = block.texts[name][row]
        if given.strip() in index:
            problem = "matches an id only without its leading or trailing spaces: remove them"
            raise fault(table, block.start + row, name, f"{shown(given)} {problem}")
        raise unknown_id(table, block.start + row, name, given, nodes)
    return rows


def _attribute_columns(table: Table, used: Sequence[str], like: Mapping[str, Any] | None) -> list[str]:
    """Return the columns of numbers; with ``like`` those that the model was trained with, or none."""
    others = [name for name in table.names if name not in used]
    if like is None:
        return [name for name in others if _begins_with_number(table, name)]
    wanted: list[str] = like.get("edge_attr", {}).get("names", [])
    return wanted if set(wanted) <= set(others) else []


def _begins_with_number(table: Table, name: str) -> bool:
    """Whether the first cell that is not empty is a number, as far as one block of rows shows."""
    with suppress(GraphError, StopIteration, ValueError):
        float(next(filter(None, next(iter(table.blocks([name], []))).texts[name])))
        return True
    return False


def _scaled(
    names: list[str], numbers: NDArray[np.float64], known: Mapping[str, Any] | None, notes: list[str]
) -> tuple[Any, dict[str, Any]]:
    """Return attributes (E, F) scaled to mean 0 and deviation 1, or as ``known``, and their recipe."""
    ids = [
        k for k, name in enumerate(names) if known is None and ID_NAME.search(name) and is_id([numbers[:, k]])
    ]
    notes += [f"column {shown(names[k])} of the edges is left out because it looks like an id" for k in ids]
    kept = [k for k in range(len(names)) if k not in ids]
    if not kept or not len(numbers):
        return None, {}
    values = numbers[:, kept]
    if known is not None and "mean" in known:
        mean, scale = np.array(known["mean"]), np.array(known["scale"])
    else:
        mean, scale = values.mean(axis=0), unit_scale(values.std(axis=0), np.abs(values).max(axis=0))
        notes.append(f"{len(kept)} edge attributes were scaled to mean 0 and standard deviation 1")
    about = {"names": [names[k] for k in kept], "mean": mean.tolist(), "scale": scale.tolist()}
    return (values - mean) * scale, {"edge_attr": about}


def note_edges(table: Table, zeros: int, notes: list[str], attributes: Sequence[str] = ()) -> None:
    """Note edges of weight 0, and columns without a meaning."""
    if zeros:
        notes.append(f"edges of weight 0 removed: {zeros:,}")
    used = [find_column(table, name) for name in ("source", "target", "weight")]
    unused = [name for name in table.names if name not in (*used, *attributes)]
    if unused:
        notes.append(f"unused columns of {table.path.name}: {', '.join(shown(name) for name in unused[:6])}")


def checked_weights(
    table: Table, start: int, column: str, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Reject weights (n) that are negative, or so small that they vanish in float32."""
    bad = np.flatnonzero((weights < 0) | ((weights > 0) & (weights < 1e-30)))
    if bad.size:
        value = weights[bad[0]]
        problem = "negative: use positive weights" if value < 0 else "too small: use a larger unit"
        raise fault(table, start + int(bad[0]), column, f"the weight {value:g} is {problem}")
    return weights
