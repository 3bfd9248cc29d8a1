"""Charts: drawn on matplotlib's Axes, embedded in a page or written as a file of their own."""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import matplotlib.style
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from bvat.report.svg import LIGHT, document, embedded, plain

SERIES = [LIGHT[f"c{k}"] for k in range(8)]
MARKERS = "os^DvPXh"
"""One per colour, so that series differ without colour too."""

WIDTH, HEIGHT = 440, 290
POINTS = 72
"""Sizes are in units of an SVG file; matplotlib counts 72 of them per inch."""
LETTER, KEY, LINE_HEIGHT = 6.8, 46, 17
"""Width of a letter in a legend, of what stands before the text, and height of a line, roughly."""


@dataclass(frozen=True)
class Chart:
    """What is drawn on one Axes.

    Attributes:
        draw: draws on an Axes.
        label: what the chart shows, for readers who cannot see it.
        title: the heading above the chart.
        width, height: without title and legend.
    """

    draw: Callable[[Axes], None]
    label: str
    title: str = ""
    width: float = WIDTH
    height: float = HEIGHT

    def svg(self) -> Markup:
        """Return the chart with its legend but without its title, to be embedded in a page."""
        with style():
            figure = Figure(figsize=(self.width / POINTS, self.height / POINTS), layout="constrained")
            figure.set_facecolor("none")
            self.draw(figure.add_subplot())
            _add_legend(figure)
            return embedded(figure, self.label)


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
    alone: bool = False
    """Whether there are points only, and no line."""


def line_chart(
    lines: Sequence[Line],
    x_label: str,
    y_label: str,
    *,
    title: str = "",
    floor: float | None = None,
    log_x: bool = False,
    x_ticks: Sequence[float] | Sequence[str] = (),
) -> Chart:
    """Return lines with their bands, or points.

    Points that are not finite are left out.

    Args:
        floor: the low end of the vertical axis.
        log_x: whether the horizontal axis is logarithmic.
        x_ticks: the ticks of the horizontal axis, instead of round numbers; texts stand for 0, 1, ...
    """
    drawn = [line for line in map(_drawable, lines) if len(line.y)]
    about = f"{y_label} against {x_label}"
    if not drawn:
        return Chart(_draw_nothing, f"{about}: no data", title)

    def draw(ax: Axes) -> None:
        for line in drawn:
            _draw_line(ax, line)
        ax.set_xlabel(plain(x_label))
        ax.set_ylabel(plain(y_label))
        _widen(ax, [x for line in drawn for x in line.x], [y for line in drawn for y in line.y])
        if log_x:
            ax.set_xscale("log")
            ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        _format_ticks(ax.xaxis, ax.yaxis)
        if floor is not None:
            ax.set_ylim(bottom=floor)
        if x_ticks and isinstance(x_ticks[0], str):
            ax.set_xticks(range(len(x_ticks)), [plain(name) for name in x_ticks])
            ax.set_xlim(-0.5, len(x_ticks) - 0.5)
        elif x_ticks:
            ax.set_xticks(x_ticks)

    return Chart(draw, f"{about}: {', '.join(line.label for line in drawn)}", title)


def bar_chart(
    groups: Mapping[str, Mapping[str, float | None]],
    y_label: str,
    *,
    title: str = "",
    looks: Mapping[str, tuple[str, int]] | None = None,
    reference: float | None = None,
    width: float = WIDTH,
) -> Chart:
    """Return one group of bars per row and one colour per column; a missing value leaves a gap.

    Args:
        groups: the values by row and column; a newline in the name of a row starts a second line.
        looks: label and colour of a column; by default its name, and a colour by its position.
        reference: a value at which a line is drawn across.
    """
    columns = list(dict.fromkeys(name for row in groups.values() for name in row))
    look = {name: (name, k) for k, name in enumerate(columns)} | dict(looks or {})

    def draw(ax: Axes) -> None:
        size = 0.8 / max(1, len(columns))
        for j, name in enumerate(columns):
            label, number = look[name]
            values = {k: row.get(name) for k, row in enumerate(groups.values())}
            heights = {k: value for k, value in values.items() if value is not None}
            places = [k - 0.4 + (j + 0.5) * size for k in heights]
            bars = ax.bar(places, list(heights.values()), width=0.94 * size, color=SERIES[number % 8])
            bars.set_label(legend_label(label))
        ax.set_xticks(range(len(groups)), [plain(name) for name in groups])
        ax.set_xlim(-0.5, len(groups) - 0.5)
        ax.set_ylabel(plain(y_label))
        _format_ticks(ax.yaxis)
        if reference is not None:
            ax.axhline(reference, color=LIGHT["ink"], linewidth=1)

    return Chart(draw, f"{y_label} of {', '.join(look[name][0] for name in columns)}", title, width)


def standalone(title: str, charts: Sequence[Chart], columns: int = 2) -> str:
    """Return an SVG file with charts side by side, ``columns`` per row.

    Its colours follow the viewer into dark mode, it has no scripts, and the same charts give the same bytes.
    """
    with style():
        return document(_sheet(title, charts, columns), title)


def pdf(title: str, charts: Sequence[Chart], columns: int = 2) -> bytes:
    """Return the same charts as a PDF file, the same bytes every time."""
    from matplotlib.backends.backend_pdf import FigureCanvasPdf  # takes as long as the rest of matplotlib

    file = io.BytesIO()
    with style():
        canvas: Any = FigureCanvasPdf(_sheet(title, charts, columns))
        canvas.print_pdf(file, metadata={"CreationDate": None})
    return file.getvalue()


@contextmanager
def style() -> Iterator[None]:
    """Apply the style file, without complaints about letters that its font lacks: viewers have others."""
    with (
        resources.as_file(resources.files("bvat.report") / "bvat.mplstyle") as path,
        matplotlib.style.context(path),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        yield


def tick_label(value: float) -> str:
    """Return a number with few digits.

    Example:
        >>> [tick_label(value) for value in (0.25, 1000, 300_000, 10_000_000)]
        ['0.25', '1000', '300k', '10M']
    """
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e4 else f"{value:g}"


def _sheet(title: str, charts: Sequence[Chart], columns: int) -> Figure:
    """Return charts side by side under their titles, with one legend for all of them below."""
    columns = min(columns, len(charts))
    rows = math.ceil(len(charts) / columns)
    width = columns * max(chart.width for chart in charts)
    heading = textwrap.fill(plain(title), max(20, int(width / 10)))
    height = rows * (HEIGHT + 30) + 26 * (1 + heading.count("\n"))
    figure = Figure(figsize=(width / POINTS, height / POINTS), layout="constrained")
    figure.suptitle(heading, x=0.01, ha="left", color=LIGHT["ink"])
    for place, chart in enumerate(charts, 1):
        ax = figure.add_subplot(rows, columns, place)
        chart.draw(ax)
        ax.set_title(plain(chart.title))
    _add_legend(figure)
    return figure


def _drawable(line: Line) -> Line:
    x, y, s = (np.asarray(v, float) for v in (line.x, line.y, line.spread or np.zeros(len(line.y))))
    kept = np.isfinite(y + s)
    return replace(line, x=x[kept], y=y[kept], spread=s[kept] if s[kept].any() else None)


def _draw_line(ax: Axes, line: Line) -> None:
    colour, marker = SERIES[line.colour % 8], MARKERS[line.colour % 8] if line.marks else ""
    if line.spread is not None:
        y, s = np.asarray(line.y), np.asarray(line.spread)
        ax.fill_between(line.x, y - s, y + s, color=colour, alpha=0.16, linewidth=0)
    if line.alone:
        ax.plot(line.x, line.y, "o", color=colour, alpha=0.6, label=legend_label(line.label))
        return
    ax.plot(
        line.x, line.y, color=colour, linestyle="--" if line.dashed else "-", marker=marker,
        markerfacecolor=LIGHT["page"] if line.dashed else colour, label=legend_label(line.label),
    )  # fmt: skip


def _draw_nothing(ax: Axes) -> None:
    ax.set_axis_off()
    ax.text(0.5, 0.5, "nothing to draw", ha="center", transform=ax.transAxes)


def _widen(ax: Axes, x: Sequence[float], y: Sequence[float]) -> None:
    """Give the axis of values that are equal but for rounding a width."""
    ax.set_xmargin(0.02)
    for name, values in (("x", x), ("y", y)):
        low, high = min(values), max(values)
        if high - low <= 1e-12 * max(abs(low), abs(high)):
            around = 0.02 * (abs(low) or 1.0)
            getattr(ax, f"set_{name}lim")(low - around, low + around)


def _format_ticks(*axes: Any) -> None:
    for axis in axes:
        axis.set_major_formatter(FuncFormatter(lambda value, _: tick_label(value)))
        axis.set_minor_locator(NullLocator())


def legend_label(text: str, most: int = 60) -> str:
    """Return a text for a legend: shortened, and with a leading underscore that does not hide it."""
    shown = plain(text) if len(text) <= most else plain(text)[: most - 1] + "…"
    return "\N{ZERO WIDTH SPACE}" + shown if shown.startswith("_") else shown


def _add_legend(figure: Figure) -> None:
    """Add a legend below the charts, in as many columns as fit, and make room for it."""
    pairs = [zip(*ax.get_legend_handles_labels(), strict=True) for ax in figure.axes]
    found = {label: handle for each in pairs for handle, label in each}
    if found:
        width, height = figure.get_size_inches()
        widths = [KEY + LETTER * len(label) for label in found]
        columns = len(found) if sum(widths) <= width * POINTS else int(width * POINTS / max(widths)) or 1
        figure.legend(list(found.values()), list(found), loc="outside lower left", ncols=columns)
        lines = math.ceil(len(found) / columns)
        figure.set_size_inches(width, height + (6 + LINE_HEIGHT * lines) / POINTS)
