"""The figures of the paper, drawn once for the page and for the files."""

from __future__ import annotations

from typing import Any

from bvat.perturb.methods import ON_GCN
from bvat.report.charts import Drawing, Line, line_chart, standalone

OTHER_COLOUR = 3
"""Of a series that is not a method."""


def figure_panels(result: dict[str, Any]) -> list[Drawing]:
    """Draw the panels of a figure of :mod:`bvat.paper.figures`; the paper's series are dashed and hollow."""
    x = result["x"]["values"]
    panels = []
    for panel in result["panels"]:
        lines = []
        several = sum(bool(series["paper"]) for series in panel["series"]) > 1
        for series in panel["series"]:
            label, published = series["label"], series["paper"]
            colour = ON_GCN[series["name"]].colour if series["name"] in ON_GCN else OTHER_COLOUR
            lines.append(Line(label, x, series["mean"], series["std"], colour, marks=True))
            if published:
                name = f"{label}, paper" if several else "the paper"
                lines.append(
                    Line(name, x[: len(published)], published, colour=colour, dashed=True, marks=True)
                )
        panels.append(line_chart(lines, result["x"]["label"], result["y"]["label"], title=panel["title"]))
    return panels


def figure_file(result: dict[str, Any]) -> str:
    """Return a figure as a standalone SVG file."""
    return standalone(result["title"], figure_panels(result))
