"""Charts as inline SVG whose colours come from the page, so that they follow it into dark mode and print."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bvat.report.html import Markup, join, tag, text

WIDTH, HEIGHT = 440, 290
LEFT, RIGHT, TOP, BOTTOM = 60, 10, 10, 42
COLOURS = 8


@dataclass(frozen=True)
class Line:
    """One line of a chart: its points, maybe a band of ``spread`` around them, maybe dashed and hollow.

    Lines of one ``colour`` (0 to 7) belong together; ``marks`` draws the points themselves.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] | None = None
    colour: int = 0
    dashed: bool = False
    marks: bool = False


@dataclass(frozen=True)
class Axes:
    """The map from values to positions in the picture."""

    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the position of a point."""
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)


def colour(number: int) -> str:
    """Return one of the page's colours."""
    return f"var(--c{number % COLOURS})"


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers from at most ``low`` to at least ``high``."""
    span = high - low or abs(high) or 1.0
    raw = span / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) for k in range(first, max(last, first + 1) + 1)]


def line_chart(lines: Sequence[Line], x_label: str, y_label: str, *, floor: float | None = None) -> Markup:
    """Return lines with their bands, axes and legend.

    Args:
        lines: not empty; points that are not finite are left out.
        x_label: what the horizontal axis shows.
        y_label: what the vertical axis shows.
        floor: a value that the vertical axis reaches down to.
    """
    drawn = [_finite(line) for line in lines]
    drawn = [line for line in drawn if line.y]
    if not drawn:
        return tag("p", "nothing to draw", cls="note")
    xs = [x for line in drawn for x in line.x]
    lows = [y - s for line in drawn for y, s in zip(line.y, line.spread or [0.0] * len(line.y), strict=True)]
    highs = [y + s for line in drawn for y, s in zip(line.y, line.spread or [0.0] * len(line.y), strict=True)]
    y_ticks = ticks(min(lows) if floor is None else min(floor, *lows), max(highs))
    x_ticks = [t for t in ticks(min(xs), max(xs), 6) if min(xs) - 1e-9 <= t <= max(xs) + 1e-9]
    wide = max(xs) - min(xs) or 1.0
    axes = Axes((min(xs) - 0.02 * wide, max(xs) + 0.02 * wide), (y_ticks[0], y_ticks[-1]))
    parts = [frame(axes, x_ticks, y_ticks, x_label, y_label)]
    parts += [_band(axes, line) for line in drawn if line.spread]
    parts += [_stroke(axes, line) for line in drawn]
    label = f"{y_label} against {x_label}: {', '.join(line.label for line in drawn)}"
    return join([picture(parts, label), legend(drawn)])


def picture(parts: Sequence[Markup], label: str, width: int = WIDTH, height: int = HEIGHT) -> Markup:
    """Return an SVG that is as wide as its place."""
    return tag("svg", *parts, viewBox=f"0 0 {width} {height}", role="img", aria_label=label)


def frame(
    axes: Axes, x_ticks: Sequence[float], y_ticks: Sequence[float], x_label: str, y_label: str
) -> Markup:
    """Return grid, axis, numbers and titles."""
    bottom = HEIGHT - BOTTOM
    parts = []
    for value in y_ticks:
        y = axes.at(axes.x[0], value)[1]
        parts.append(tag("path", d=f"M{LEFT} {y:.1f}H{WIDTH - RIGHT}", cls="grid"))
        parts.append(tag("text", f"{value:g}", x=LEFT - 6, y=f"{y + 4:.1f}", text_anchor="end"))
    for value in x_ticks:
        x = axes.at(value, axes.y[0])[0]
        parts.append(tag("path", d=f"M{x:.1f} {bottom}v4", cls="axis"))
        parts.append(tag("text", f"{value:g}", x=f"{x:.1f}", y=bottom + 17, text_anchor="middle"))
    parts.append(tag("path", d=f"M{LEFT} {bottom}H{WIDTH - RIGHT}", cls="axis"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(tag("text", x_label, x=middle, y=HEIGHT - 8, text_anchor="middle"))
    up = (TOP + bottom) / 2
    parts.append(tag("text", y_label, transform=f"translate(12 {up}) rotate(-90)", text_anchor="middle"))
    return join(parts)


def _finite(line: Line) -> Line:
    spread = line.spread or [0.0] * len(line.y)
    kept = [(x, y, s) for x, y, s in zip(line.x, line.y, spread, strict=True) if math.isfinite(y + s)]
    x, y, s = zip(*kept, strict=True) if kept else ((), (), ())
    banded = s if line.spread and any(s) else None
    return Line(line.label, x, y, banded, line.colour, line.dashed, line.marks)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _band(axes: Axes, line: Line) -> Markup:
    spread = line.spread or ()
    upper = [axes.at(x, y + s) for x, y, s in zip(line.x, line.y, spread, strict=True)]
    lower = [axes.at(x, y - s) for x, y, s in zip(line.x, line.y, spread, strict=True)]
    outline = _path(upper + lower[::-1]) + "Z"
    return tag("path", d=outline, fill=colour(line.colour), opacity=0.16)


def _stroke(axes: Axes, line: Line) -> Markup:
    points = [axes.at(x, y) for x, y in zip(line.x, line.y, strict=True)]
    dash = "5 4" if line.dashed else None
    parts = [
        tag(
            "path",
            d=_path(points),
            fill="none",
            stroke=colour(line.colour),
            stroke_width=1.8,
            stroke_dasharray=dash,
            stroke_linejoin="round",
        )
    ]
    if line.marks:
        for (px, py), x, y in zip(points, line.x, line.y, strict=True):
            hint = tag("title", f"{line.label}: {y:.4g} at {x:g}")
            parts.append(mark(px, py, line.colour, hollow=line.dashed, hint=hint))
    return join(parts)


def mark(x: float, y: float, number: int, *, hollow: bool, hint: Markup | None = None) -> Markup:
    """Return a point: circle, square, triangle or diamond by the number of its colour."""
    shapes = ("M-3.4 0a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0-6.8 0Z", "M-3-3h6v6h-6Z", "M0-4L3.8 3H-3.8Z",
              "M0-4L4 0L0 4L-4 0Z")  # fmt: skip
    return tag(
        "path",
        hint or "",
        d=shapes[number % len(shapes)],
        transform=f"translate({x:.1f} {y:.1f})",
        fill="var(--page)" if hollow else colour(number),
        stroke=colour(number),
        stroke_width=1.4,
    )


def legend(lines: Sequence[Line]) -> Markup:
    """Return the names of the lines beside short pieces of them."""
    items: list[Any] = []
    for line in lines:
        piece = tag("path", d="M1 6H25", stroke=colour(line.colour), stroke_width=2, fill="none",
                    stroke_dasharray="5 4" if line.dashed else None)  # fmt: skip
        point = mark(13, 6, line.colour, hollow=line.dashed) if line.marks else Markup("")
        swatch = tag("svg", piece, point, viewBox="0 0 26 12", aria_hidden="true")
        items.append(tag("span", swatch, text(line.label)))
    return tag("div", *items, cls="legend")
