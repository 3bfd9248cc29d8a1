"""Grouped bar charts."""

from __future__ import annotations

from collections.abc import Mapping

from bvat.report.charts.axes import Axis, Plot, fitted_axis
from bvat.report.charts.drawing import HEIGHT, WIDTH, Drawing, Key
from bvat.report.html import join, tag
from bvat.report.palette import colour


def bar_chart(
    groups: Mapping[str, Mapping[str, float | None]],
    y_label: str,
    *,
    title: str = "",
    looks: Mapping[str, tuple[str, int]] | None = None,
    log: bool = False,
    reference: float | None = None,
    width: float = WIDTH,
) -> Drawing:
    """Draw one group of bars per row and one colour per column; a missing value leaves a gap.

    Args:
        groups: the values by row and column; a newline in the name of a row starts a second line.
        y_label: what the bars show.
        title: the heading above the chart.
        looks: label and colour of a column; by default its name, and a colour by its place.
        log: a logarithmic axis; zeros leave gaps too.
        reference: a value at which a line is drawn across.
        width: of the drawing.
    """
    columns = list(dict.fromkeys(name for row in groups.values() for name in row))
    look = {name: (name, k) for k, name in enumerate(columns)} | dict(looks or {})
    values = [value for row in groups.values() for value in row.values() if value]
    # the memory of a tiny graph can be too small to measure: zeros have no logarithm
    log = log and bool(values)
    ends = [*values, *([] if log else [0.0]), *([] if reference is None else [reference])]
    places = [k + 0.5 for k in range(len(groups))]
    plot = Plot(
        Axis("", 0, len(groups), places, names=tuple(groups)), fitted_axis(y_label, ends, log=log), width
    )
    bar = 0.8 / max(1, len(columns))
    parts = [plot.frame()]
    foot = plot.y.low if log else 0.0  # negative values hang down from zero
    for k, (group, row) in enumerate(groups.items()):
        for j, name in enumerate(columns):
            if value := row.get(name):
                left, end = plot.at(k + 0.1 + j * bar, value)
                right, start = plot.at(k + 0.1 + (j + 1) * bar, foot)
                top, bottom = min(start, end), max(start, end)
                label, number = look[name]
                hint = tag("title", f"{group}, {label}: {value:.4g}".replace("\n", ", "))
                parts.append(
                    tag("rect", hint, x=f"{left:.1f}", y=f"{top:.1f}", width=f"{right - left - 1:.1f}",
                        height=f"{bottom - top:.1f}", fill=colour(number))
                )  # fmt: skip
    if reference is not None:
        (x0, y), (x1, _) = plot.at(0, reference), plot.at(len(groups), reference)
        parts.append(tag("path", d=f"M{x0:.1f} {y:.1f}H{x1:.1f}", stroke="var(--ink)"))
    keys = [
        Key(look[name][0], tag("rect", x=1, y=1, width=10, height=10, fill=colour(look[name][1])), width=12)
        for name in columns
    ]
    label = f"{y_label} of {', '.join(key.label for key in keys)}"
    return Drawing(join(parts), label, tuple(keys), title, width, HEIGHT)
