"""Line charts: bands of standard deviations, dashed and hollow reference series, marks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bvat.report.charts.axes import Plot, fitted_axis
from bvat.report.charts.drawing import HEIGHT, WIDTH, Drawing, Key
from bvat.report.html import Markup, join, tag
from bvat.report.palette import colour

SHAPES = (
    "M-3.4 0a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0-6.8 0Z",
    "M-3-3h6v6h-6Z",
    "M0-4L3.8 3H-3.8Z",
    "M0-4L4 0L0 4L-4 0Z",
    "M0 4L3.8-3H-3.8Z",
    "M-4-2h8v4h-8Z",
    "M-2-4h4v8h-4Z",
    "M-1.4-4h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6v-2.8h2.6Z",
)
"""One shape per colour, so that series differ without colour too."""


@dataclass(frozen=True)
class Line:
    """One series: its points, an optional band of ``spread`` around them, optionally dashed and hollow.

    Lines of one ``colour`` (0 to 7) belong together; ``marks`` draws the points themselves.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] | None = None
    colour: int = 0
    dashed: bool = False
    marks: bool = False


def line_chart(
    lines: Sequence[Line],
    x_label: str,
    y_label: str,
    *,
    title: str = "",
    floor: float | None = None,
    log_x: bool = False,
    log_y: bool = False,
    x_ticks: Sequence[float] = (),
) -> Drawing:
    """Draw lines with their bands.

    Args:
        lines: points that are not finite, or not positive on a logarithmic axis, are left out.
        x_label: what the horizontal axis shows.
        y_label: what the vertical axis shows.
        title: the heading above the chart.
        floor: a value that the vertical axis reaches down to.
        log_x: a logarithmic horizontal axis.
        log_y: a logarithmic vertical axis.
        x_ticks: the ticks of the horizontal axis, instead of round numbers.
    """
    drawn = [line for line in (_drawable(line, log_x, log_y) for line in lines) if line.y]
    if not drawn:
        nothing = tag("text", "nothing to draw", x=WIDTH / 2, y=HEIGHT / 2, text_anchor="middle")
        return Drawing(nothing, f"{y_label} against {x_label}: no data", title=title)
    xs = [x for line in drawn for x in line.x]
    ends = [y + sign * s for line in drawn for y, s in _with_spread(line) for sign in (-1, 1)]
    ends = [y for y in ends if y > 0] if log_y else [*ends, *([] if floor is None else [floor])]
    plot = Plot(
        fitted_axis(x_label, xs, log=log_x, cover=False, at=x_ticks), fitted_axis(y_label, ends, log=log_y)
    )
    parts = [plot.frame(), *[_band(plot, line) for line in drawn if line.spread]]
    parts += [_stroke(plot, line) for line in drawn]
    label = f"{y_label} against {x_label}: {', '.join(line.label for line in drawn)}"
    return Drawing(join(parts), label, tuple(map(_key, drawn)), title)


def _drawable(line: Line, log_x: bool, log_y: bool) -> Line:
    kept = [
        (x, y, s)
        for x, (y, s) in zip(line.x, _with_spread(line), strict=True)
        if math.isfinite(y + s) and (x > 0 or not log_x) and (y > 0 or not log_y)
    ]
    x, y, s = zip(*kept, strict=True) if kept else ((), (), ())
    return replace(line, x=x, y=y, spread=s if any(s) else None)


def _with_spread(line: Line) -> list[tuple[float, float]]:
    return list(zip(line.y, line.spread or [0.0] * len(line.y), strict=True))


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _band(plot: Plot, line: Line) -> Markup:
    sides = [
        [plot.at(x, y + sign * s) for x, (y, s) in zip(line.x, _with_spread(line), strict=True)]
        for sign in (1, -1)
    ]
    return tag("path", d=_path(sides[0] + sides[1][::-1]) + "Z", fill=colour(line.colour), opacity=0.16)


def _stroke(plot: Plot, line: Line) -> Markup:
    points = [plot.at(x, y) for x, y in zip(line.x, line.y, strict=True)]
    parts = [_piece(line, _path(points))]
    if line.marks:
        parts += [
            _mark(line, px, py, tag("title", f"{line.label}: {y:.4g} at {x:g}"))
            for (px, py), x, y in zip(points, line.x, line.y, strict=True)
        ]
    return join(parts)


def _piece(line: Line, path: str) -> Markup:
    return tag("path", d=path, fill="none", stroke=colour(line.colour), stroke_width=1.8,
               stroke_dasharray="5 4" if line.dashed else None, stroke_linejoin="round")  # fmt: skip


def _mark(line: Line, x: float, y: float, hint: Markup | str = "") -> Markup:
    fill = "var(--page)" if line.dashed else colour(line.colour)
    return tag("path", hint, d=SHAPES[line.colour % len(SHAPES)], transform=f"translate({x:.1f} {y:.1f})",
               fill=fill, stroke=colour(line.colour), stroke_width=1.4)  # fmt: skip


def _key(line: Line) -> Key:
    return Key(line.label, join([_piece(line, "M1 6H25"), *([_mark(line, 13, 6)] if line.marks else [])]))
