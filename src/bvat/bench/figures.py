"""Plots of the results, drawn with matplotlib where it is installed."""

from __future__ import annotations

import importlib
import io
from collections.abc import Iterator
from typing import Any

from bvat.bench.growth import AXES
from bvat.bench.plan import METHODS

MISSING = "no plots, because matplotlib is not installed: pip install matplotlib"
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
"""Distinct for colour-blind readers too."""

_OF_METHOD = dict(zip(METHODS, COLOURS, strict=True))

Groups = dict[str, dict[str, float | None]]


def all_figures(results: dict[str, Any]) -> dict[str, bytes] | None:
    """Return the content of each plot by its file name, SVG and PNG; None where matplotlib is missing."""
    try:
        matplotlib = importlib.import_module("matplotlib")
        figure = importlib.import_module("matplotlib.figure").Figure
    except ImportError:
        return None
    files: dict[str, bytes] = {}
    # the salt and the missing date make the same numbers give the same bytes
    with matplotlib.rc_context({"svg.hashsalt": "bvat", "font.size": 9, "axes.axisbelow": True}):
        for name, drawn in _draw(figure, results):
            for kind, options in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": 150})):
                content = io.BytesIO()
                drawn.savefig(content, format=kind, **options)
                files[f"{name}.{kind}"] = content.getvalue()
    return files


def _draw(figure: Any, results: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    ratios = results["ratios"]
    drawn, axes = _panels(figure, 1)
    _bars(axes[0], ratios["method_over_gcn"], "epoch / GCN epoch", log=False)
    axes[0].axhline(1, color="black", linewidth=0.8)
    yield "methods", drawn
    if any(ratios["pyg_over_ours"].values()):
        drawn, axes = _panels(figure, 1)
        _bars(axes[0], ratios["pyg_over_ours"], "PyG epoch / our epoch", log=False)
        axes[0].axhline(1, color="black", linewidth=0.8)
        yield "pyg", drawn
    drawn, axes = _panels(figure, 2)
    _bars(axes[0], _flat(results["space_epoch_ms"]), "ms an epoch", log=True)
    _bars(axes[1], _flat(results["space_peak_mb"]), "peak MiB", log=True)
    yield "spaces", drawn
    if results["growth"] is not None:
        yield "growth", _growth(figure, results["growth"])
    if results["limit"] is not None:
        drawn, axes = _panels(figure, 2)
        for axis, key, label in (
            (axes[0], "fraction", "limit / epoch"),
            (axes[1], "products_fraction", "sparse products alone / epoch"),
        ):
            shares = {
                dataset: {method: row[key] for method, row in each["methods"].items()}
                for dataset, each in results["limit"]["datasets"].items()
            }
            _bars(axis, shares, label, log=False)
        yield "limit", drawn


def _colour(name: str, place: int) -> str:
    """Return the colour of a method, the same in every plot, or one by the place of what is no method."""
    return _OF_METHOD.get(name, COLOURS[place % len(COLOURS)])


def _panels(figure: Any, rows: int) -> tuple[Any, list[Any]]:
    drawn = figure(figsize=(8, 3.2 * rows), layout="constrained")
    return drawn, [drawn.add_subplot(rows, 1, k + 1) for k in range(rows)]


def _flat(table: dict[str, dict[str, dict[str, float | None]]]) -> Groups:
    return {f"{dataset}\n{m}": row for dataset, methods in table.items() for m, row in methods.items()}


def _bars(axis: Any, groups: Groups, label: str, *, log: bool) -> None:
    """Draw one group of bars a row of the table, one colour a column; what is missing leaves a gap."""
    names = list(dict.fromkeys(name for row in groups.values() for name in row))
    width = 0.8 / max(1, len(names))
    for k, name in enumerate(names):
        here = [(g, row[name]) for g, row in enumerate(groups.values()) if row.get(name) is not None]
        places = [g + (k - (len(names) - 1) / 2) * width for g, _ in here]
        axis.bar(places, [value for _, value in here], width, label=name, color=_colour(name, k))
    axis.set_xticks(range(len(groups)), list(groups))
    axis.set_ylabel(label)
    # the memory of a tiny graph can be too little to measure
    if log and any(value for row in groups.values() for value in row.values()):
        axis.set_yscale("log")
    axis.grid(axis="y", linewidth=0.4)
    axis.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _growth(figure: Any, growth: dict[str, Any]) -> Any:
    """Draw time above and memory below, along each axis, with the fitted exponents."""
    drawn = figure(figsize=(10, 6), layout="constrained")
    for column, along in enumerate(AXES):
        for row, (key, label) in enumerate((("epoch_ms", "ms an epoch"), ("peak_mb", "peak MiB"))):
            axis = drawn.add_subplot(2, len(AXES), row * len(AXES) + column + 1)
            sizes: set[int] = set()
            for k, (method, fitted) in enumerate(growth["exponents"][along].items()):
                chosen = [p for p in growth["points"] if (p["axis"], p["method"]) == (along, method)]
                exponent = fitted[key]
                text = method if exponent is None else f"{method}, exponent {exponent:.2f}"
                along_x = [p[along] for p in chosen]
                axis.plot(along_x, [p[key] for p in chosen], "o-", label=text, color=_colour(method, k))
                sizes.update(along_x)
            axis.set_xscale("log")
            if any(p[key] > 0 for p in growth["points"] if p["axis"] == along):
                axis.set_yscale("log")
            if along == "hidden":  # less than two decades: the sizes say more than powers of ten
                axis.set_xticks(sorted(sizes), [str(size) for size in sorted(sizes)])
                axis.minorticks_off()
            axis.set_xlabel(along)
            axis.set_ylabel(label)
            axis.grid(linewidth=0.4)
            axis.legend(frameon=False)
    return drawn
