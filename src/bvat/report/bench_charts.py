"""The results of ``bvat bench`` as charts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bvat.bench.plan import ROWS
from bvat.report.charts import Drawing, Line, bar_chart, line_chart, standalone

WIDE = 880
LOOKS = {name: (row.title, row.colour) for name, row in ROWS.items()}


def bench_charts(results: dict[str, Any]) -> dict[str, str]:
    """Return a standalone SVG file per section that was measured, by its name without suffix."""
    return {
        name: standalone(title, drawings, columns) for name, title, drawings, columns in _figures(results)
    }


def _figures(results: dict[str, Any]) -> Iterator[tuple[str, str, list[Drawing], int]]:
    """Yield name, title, panels and panels per row."""
    ratios = results["ratios"]
    methods = _bars(ratios["method_over_gcn"], "epoch / GCN epoch", reference=1)
    yield "methods", "Epoch time of the methods, relative to a GCN", [methods], 1
    if any(ratios["pyg_over_ours"].values()):
        forms = _bars(ratios["pyg_over_ours"], "PyG epoch / our epoch", log=True, reference=1)
        yield "pyg", "Epoch time of torch_geometric's GCN, relative to ours", [forms], 1
    memory = _bars(results["peak_mb"], "peak MiB", log=True)
    yield "memory", "Memory of the methods", [memory], 1
    if results["compiled"]:
        yield "compiled", "Gain of the compiled kernels: plain / compiled", _compiled(results["compiled"]), 2


def _bars(groups: Mapping[str, Mapping[str, float | None]], y_label: str, **options: Any) -> Drawing:
    return bar_chart(groups, y_label, looks=LOOKS, width=WIDE, **options)


def _compiled(rows: list[dict[str, Any]]) -> list[Drawing]:
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
                           log_x=True, x_ticks=widths)
            )  # fmt: skip
    return panels
