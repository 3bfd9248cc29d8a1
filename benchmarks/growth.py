"""How the time and memory of an epoch grow with edges, features and hidden units, on synthetic graphs.

python benchmarks/growth.py --out results/bench/growth.json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bvat.bench.measure import Budget, machine
from bvat.data.files import write_json
from bvat.training.provenance import versions
from cell import Cell, run_cell

AXES = ("edges", "features", "hidden")
BUDGET = Budget(warmup=1, rounds=30, seconds=5.0, min_rounds=2)
EDGES_PER_NODE = 10
"""Undirected edges, so that the average degree is 20."""


@dataclass(frozen=True)
class Growth:
    """The sizes of the synthetic graphs; each axis is varied while the others keep their ``base`` value."""

    edges: tuple[int, ...] = (10_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
    features: tuple[int, ...] = (100, 1_000, 10_000, 100_000)
    hidden: tuple[int, ...] = (16, 64, 256)
    methods: tuple[str, ...] = ("gcn", "obvat")
    base_edges: int = 100_000
    base_features: int = 1_000
    base_hidden: int = 16
    classes: int = 8
    fit_edges_from: int = 100_000
    """The exponent against edges is fitted from here on; below, fixed costs hide the growth."""
    budget: Budget = BUDGET


def points(growth: Growth) -> Iterator[dict[str, Any]]:
    """Yield axis, method, nodes, edges, features and hidden units of every point, small ones first."""
    for axis in AXES:
        for value in sorted(getattr(growth, axis)):
            base = {name: getattr(growth, f"base_{name}") for name in AXES} | {axis: value}
            for method in growth.methods:
                yield {"axis": axis, "method": method, "nodes": base["edges"] // EDGES_PER_NODE, **base}


def measure_growth(growth: Growth) -> dict[str, Any]:
    """Measure every point in its own process.

    Returns:
        ``{"points": [...], "exponents": {axis: {method: {"epoch_ms": b, "peak_mb": b}}}, "exponent": b,
        "skipped": [...]}``: the last exponent is that of O-BVAT's epoch time against edges.
    """
    measured: list[dict[str, Any]] = []
    failed: list[str] = []
    known: dict[tuple[Any, ...], dict[str, Any]] = {}
    for point in points(growth):
        what = tuple(value for name, value in point.items() if name != "axis")
        if what not in known:  # the three axes meet in one point
            source = {name: point[name] for name in ("nodes", "edges", "features")}
            changes = {"hidden": point["hidden"]}
            cell = Cell(
                {**source, "classes": growth.classes}, "synthetic", point["method"], growth.budget, changes
            )
            known[what] = run_cell(cell)
        if "reason" in known[what]:
            place = f"{point['axis']} {point[point['axis']]}"
            failed.append(f"{point['method']} at {place}: {known[what]['reason']}")
        else:
            measured.append({**point, "classes": growth.classes, **known[what]})
    exponents = fit_all(measured, growth)
    last = exponents["edges"].get("obvat", {}).get("epoch_ms")
    return {"points": measured, "exponents": exponents, "exponent": last, "skipped": failed}


def fit_all(measured: list[dict[str, Any]], growth: Growth) -> dict[str, dict[str, dict[str, float | None]]]:
    """Fit the exponents of time and memory along each axis; for edges, from ``fit_edges_from`` on."""
    exponents: dict[str, dict[str, dict[str, float | None]]] = {}
    for axis in AXES:
        low = growth.fit_edges_from if axis == "edges" else 0
        exponents[axis] = {}
        for method in growth.methods:
            chosen = [p for p in measured if (p["axis"], p["method"]) == (axis, method) and p[axis] >= low]
            exponents[axis][method] = {
                key: fit_exponent([p[axis] for p in chosen], [p[key] for p in chosen])
                for key in ("epoch_ms", "peak_mb")
            }
    return exponents


def fit_exponent(x: list[float], y: list[float]) -> float | None:
    """Fit b of ``y = a x^b`` by least squares on the logarithms; None for fewer than two sizes."""
    positive = [(u, v) for u, v in zip(x, y, strict=True) if u > 0 and v > 0]
    if len({u for u, _ in positive}) < 2:
        return None
    return float(np.polyfit(*np.log(positive).T, 1)[0])


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--most-edges", type=float, default=1e7, help="leave out larger graphs")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    growth = Growth(edges=tuple(edges for edges in Growth().edges if edges <= asked.most_edges))
    write_json(asked.out, {**measure_growth(growth), "machine": machine(), "versions": versions()})


if __name__ == "__main__":
    main(sys.argv[1:])
