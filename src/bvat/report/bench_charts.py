"""The results of ``bvat bench`` as charts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bvat.bench.growth import AXES
from bvat.bench.plan import ROWS
from bvat.report.charts import Chart, Line, bar_chart, line_chart, standalone

WIDE = 880
LOOKS = {name: (row.title, row.colour) for name, row in ROWS.items()}


def bench_charts(results: dict[str, Any]) -> dict[str, str]:
    """Return a standalone SVG file per section that was measured, by its name without suffix."""
    return {
        name: standalone(title, drawings, columns) for name, title, drawings, columns in _figures(results)
    }


def _figures(results: dict[str, Any]) -> Iterator[tuple[str, str, list[Chart], int]]:
    """Yield name, title, panels and panels per row."""
    ratios, limit = results["ratios"], results["limit"]
    methods = _bars(ratios["method_over_gcn"], "epoch / GCN epoch", reference=1)
    yield "methods", "Epoch time of the methods, relative to a GCN", [methods], 1
    if any(ratios["pyg_over_ours"].values()):
        forms = _bars(ratios["pyg_over_ours"], "PyG epoch / our epoch", log=True, reference=1)
        yield "pyg", "Epoch time of torch_geometric's GCN, relative to ours", [forms], 1
    spaces = [
        _bars(_flat(results["space_epoch_ms"]), "ms per epoch", log=True, title="time"),
        _bars(_flat(results["space_peak_mb"]), "peak MiB", log=True, title="memory"),
    ]
    yield "spaces", "Time and memory of the perturbation spaces", spaces, 1
    if results.get("compiled"):
        yield "compiled", "Gain of the compiled kernels: plain / compiled", _compiled(results["compiled"]), 2
    if results["growth"] is not None:
        yield "growth", "Time and memory against the size of the graph", _growth(results["growth"]), len(AXES)
    if limit is not None:
        shares = {
            key: {
                dataset: {method: row[key] for method, row in each["methods"].items()}
                for dataset, each in limit["datasets"].items()
            }
            for key in ("fraction", "products_fraction")
        }
        panels = [
            _bars(shares["fraction"], "limit / epoch", title="limit of the machine"),
            _bars(shares["products_fraction"], "products / epoch", title="sparse products alone"),
        ]
        yield "limit", "How close an epoch is to the limit of the machine", panels, 1


def _bars(groups: Mapping[str, Mapping[str, float | None]], y_label: str, **options: Any) -> Chart:
    return bar_chart(groups, y_label, looks=LOOKS, width=WIDE, **options)


def _flat(table: dict[str, dict[str, dict[str, float | None]]]) -> dict[str, dict[str, float | None]]:
    return {
        f"{LOOKS[method][0].split(',')[0]}\n{dataset}": row
        for dataset, methods in table.items()
        for method, row in methods.items()
    }


def _compiled(rows: list[dict[str, Any]]) -> list[Chart]:
    """Draw the gain against the width: one row of panels per data set, CPU time and wall time."""
    widths = sorted({row["hidden"] for row in rows})
    panels = []
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        for key, unit in (("cpu_ratio", "CPU time"), ("ratio", "wall time")):
            lines = [Line("no gain", [widths[0], widths[-1]], [1.0, 1.0], colour=7, dashed=True)]
            for method in dict.fromkeys(row["method"] for row in rows):
                chosen = [
                    row for row in rows if (row["dataset"], row["method"]) == (dataset, method) and row[key]
                ]
                label, colour = LOOKS[method]
                x, y = ([row[name] for row in chosen] for name in ("hidden", key))
                lines.append(Line(label, x, y, colour=colour, marks=True))
            panels.append(
                line_chart(lines, "hidden units", "plain / compiled", title=f"{dataset}, {unit}", floor=0,
                           log="x", x_ticks=widths)
            )  # fmt: skip
    return panels


def _growth(growth: dict[str, Any]) -> list[Chart]:
    """Draw time above and memory below, along each axis, with the fitted exponents."""
    panels = []
    for key, y_label in (("epoch_ms", "ms per epoch"), ("peak_mb", "peak MiB")):
        for axis in AXES:
            lines = []
            for method, fitted in growth["exponents"][axis].items():
                chosen = [p for p in growth["points"] if (p["axis"], p["method"]) == (axis, method)]
                label, colour = LOOKS[method]
                if fitted[key] is not None:
                    label += f": exponent {fitted[key]:.2f}"
                x, y = ([point[name] for point in chosen] for name in (axis, key))
                lines.append(Line(label, x, y, colour=colour, marks=True))
            sizes = sorted({x for line in lines for x in line.x})
            # less than two decades: the sizes themselves say more than powers of ten
            ticks = sizes if axis == "hidden" else ()
            x_label = "hidden units" if axis == "hidden" else axis
            panels.append(line_chart(lines, x_label, y_label, log="xy", x_ticks=ticks))
    return panels
