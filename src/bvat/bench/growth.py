"""How the time and memory of an epoch grow with edges, features and hidden units."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from bvat.bench.cell import Cell, run_cell
from bvat.bench.epochs import settings_of
from bvat.bench.plan import Growth

AXES = ("edges", "features", "hidden")
EDGES_PER_NODE = 10
"""Undirected edges, so that the average degree is 20."""


def fit_exponent(x: list[float], y: list[float]) -> float | None:
    """Fit b of ``y = a x^b`` by least squares on the logarithms; None for fewer than two sizes."""
    pairs = [(math.log(u), math.log(v)) for u, v in zip(x, y, strict=True) if u > 0 and v > 0]
    if len({u for u, _ in pairs}) < 2:
        return None
    mean_u = sum(u for u, _ in pairs) / len(pairs)
    mean_v = sum(v for _, v in pairs) / len(pairs)
    return sum((u - mean_u) * (v - mean_v) for u, v in pairs) / sum((u - mean_u) ** 2 for u, _ in pairs)


def points(growth: Growth) -> Iterator[dict[str, Any]]:
    """Yield axis, method, nodes, edges, features and hidden units of every point, small ones first."""
    for axis in AXES:
        for value in sorted(getattr(growth, axis)):
            base = {name: getattr(growth, f"base_{name}") for name in AXES} | {axis: value}
            for method in growth.methods:
                yield {"axis": axis, "method": method, "nodes": base["edges"] // EDGES_PER_NODE, **base}


def measure_growth(growth: Growth, log: Callable[[str], None]) -> tuple[dict[str, Any], list[str]]:
    """Measure every point in its own process.

    Returns:
        ``{"points": [...], "exponents": {axis: {method: {"epoch_ms": b, "peak_mb": b}}}, "exponent": b}``,
        the last one for O-BVAT's epoch time against edges; and what failed and why.
    """
    measured: list[dict[str, Any]] = []
    failed: list[str] = []
    known: dict[tuple[Any, ...], dict[str, Any]] = {}
    for point in points(growth):
        what = tuple(value for name, value in point.items() if name != "axis")
        if what not in known:  # the three axes meet in one point
            log(
                "growth: {method}, {nodes} nodes, {edges} edges, {features} features, hidden {hidden}".format(
                    **point
                )
            )
            known[what] = run_cell(_cell(point, growth))
        result = known[what]
        if "reason" in result:
            failed.append(f"growth, {point['method']} at {point['axis']} {point[point['axis']]}: "
                          f"{result['reason']}")  # fmt: skip
        else:
            measured.append({**point, **result})
    exponents = fit_all(measured, growth)
    last = exponents["edges"].get("obvat", {}).get("epoch_ms")
    return {"points": measured, "exponents": exponents, "exponent": last}, failed


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


def _cell(point: dict[str, Any], growth: Growth) -> Cell:
    source = {
        "nodes": point["nodes"],
        "edges": point["edges"],
        "features": point["features"],
        "classes": growth.classes,
    }
    settings = settings_of("synthetic", point["method"]).replace(hidden=point["hidden"])
    return Cell(source, settings.as_dict(), growth.budget)
