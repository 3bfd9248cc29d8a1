"""Charts: drawn on matplotlib's Axes, embedded in a page or written as a file of their own."""

from __future__ import annotations

import io
import logging
import math
import re
import textwrap
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from typing import Any

import numpy as np
from markupsafe import Markup

_LOG = logging.getLogger("matplotlib")
_level = _LOG.level
_LOG.setLevel(logging.ERROR)  # a first import says that it builds a cache of fonts, and where
import matplotlib.style  # noqa: E402
from matplotlib.artist import Artist  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure, SubFigure  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator  # noqa: E402

_LOG.setLevel(_level)

LIGHT = {
    "page": "#ffffff", "card": "#f6f7f9", "ink": "#1b1f24", "soft": "#57606a", "line": "#d5dae0",
    "grid": "#e6e9ed", "c0": "#0072b2", "c1": "#c44e00", "c2": "#007a5a", "c3": "#a3407f", "c4": "#8a6d00",
    "c5": "#0a9bab", "c6": "#6b5bb5", "c7": "#666666", "good": "#0a5c3e", "good-back": "#d3f0e2",
    "fair": "#34495e", "fair-back": "#e4ebf3", "bad": "#8a2c00", "bad-back": "#fde3d3", "heat": "0, 114, 178",
}  # fmt: skip
"""Colours of pages and charts. Colour-blind readers can distinguish those of series, c0 to c7."""
DARK = {
    "page": "#14171b", "card": "#1d2127", "ink": "#e8eaed", "soft": "#a3abb5", "line": "#363c45",
    "grid": "#2a2f37", "c0": "#5ab4f0", "c1": "#ff9a52", "c2": "#3ccf9f", "c3": "#e58fc4", "c4": "#e6c84a",
    "c5": "#4fdcec", "c6": "#b3a6f0", "c7": "#b5b5b5", "good": "#7fe0b5", "good-back": "#123a2b",
    "fair": "#c3d0de", "fair-back": "#27313d", "bad": "#ffb48a", "bad-back": "#4a2411",
    "heat": "90, 180, 240",
}  # fmt: skip
SERIES = [LIGHT[f"c{k}"] for k in range(8)]
MARKERS = "os^DvPXh"
"""One per colour, so that series differ without colour too."""

WIDTH, HEIGHT = 440, 290
POINTS = 72
"""Sizes are in units of an SVG file; matplotlib counts 72 of them per inch."""
LETTER, KEY, LINE_HEIGHT = 6.8, 46, 17
"""Width of a letter in a legend, of what stands before the text, and height of a line, roughly."""
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML and HTML do not allow."""

Hints = list[tuple[Artist, Sequence[str]]]
"""Texts that appear when the mouse is over an artist: one, or one per mark of a line."""


@dataclass(frozen=True)
class Chart:
    """What is drawn on one Axes.

    Attributes:
        draw: draws on an Axes and returns the texts to show on hover.
        label: what the chart shows, for readers who cannot see it.
        title: the heading above the chart.
        width, height: the size without title and legend.
    """

    draw: Callable[[Axes], Hints]
    label: str
    title: str = ""
    width: float = WIDTH
    height: float = HEIGHT

    def svg(self) -> Markup:
        """Return the chart with its legend but without its title, to be embedded in a page."""
        with style():
            figure = Figure(figsize=(self.width / POINTS, self.height / POINTS), layout="constrained")
            figure.set_facecolor("none")
            hints = self.draw(figure.add_subplot())
            _add_legend(figure, [figure.axes[0]], self.width)
            root = _svg_root(figure, hints, self.label)
        root.set("role", "img")
        root.set("aria-label", _plain(self.label))
        names = {value: name for name, value in LIGHT.items()}
        content = re.sub("#[0-9a-f]{6}", lambda hit: f"var(--{names[hit[0]]})" if hit[0] in names else hit[0],
                         ET.tostring(root, "unicode"))  # fmt: skip
        return Markup(content)


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
    log: str = "",
    x_ticks: Sequence[float] = (),
) -> Chart:
    """Return lines with their bands.

    Args:
        lines: points that are not finite, or not positive on a logarithmic axis, are left out.
        x_label: what the horizontal axis shows.
        y_label: what the vertical axis shows.
        title: the heading above the chart.
        floor: the low end of the vertical axis.
        log: the logarithmic axes: ``""``, ``"x"``, ``"y"`` or ``"xy"``.
        x_ticks: the ticks of the horizontal axis, instead of round numbers.
    """
    drawn = [line for line in (_drawable(line, log) for line in lines) if len(line.y)]
    about = f"{y_label} against {x_label}"
    if not drawn:
        return Chart(_draw_nothing, f"{about}: no data", title)

    def draw(ax: Axes) -> Hints:
        hints = [hint for line in drawn for hint in _draw_line(ax, line, "y" in log)]
        ax.set_xlabel(_plain(x_label))
        ax.set_ylabel(_plain(y_label))
        _scale(ax, log, [x for line in drawn for x in line.x], [y for line in drawn for y in line.y])
        if floor is not None:
            ax.set_ylim(bottom=floor)
        if x_ticks:
            ax.set_xticks(x_ticks)
        return hints

    return Chart(draw, f"{about}: {', '.join(line.label for line in drawn)}", title)


def bar_chart(
    groups: Mapping[str, Mapping[str, float | None]],
    y_label: str,
    *,
    title: str = "",
    looks: Mapping[str, tuple[str, int]] | None = None,
    log: bool = False,
    reference: float | None = None,
    width: float = WIDTH,
) -> Chart:
    """Return one group of bars per row and one colour per column; a missing value leaves a gap.

    Args:
        groups: the values by row and column; a newline in the name of a row starts a second line.
        y_label: what the bars show.
        title: the heading above the chart.
        looks: label and colour of a column; by default its name, and a colour by its position.
        log: a logarithmic axis; zeros leave gaps too.
        reference: a value at which a line is drawn across.
        width: the width of the chart.
    """
    columns = list(dict.fromkeys(name for row in groups.values() for name in row))
    look = {name: (name, k) for k, name in enumerate(columns)} | dict(looks or {})
    # the memory of a tiny graph can be too small to measure: zeros have no logarithm
    log = log and any(value for row in groups.values() for value in row.values())

    def draw(ax: Axes) -> Hints:
        hints: Hints = []
        size = 0.8 / max(1, len(columns))
        for j, name in enumerate(columns):
            label, number = look[name]
            found = [(k, group, row[name]) for k, (group, row) in enumerate(groups.items()) if row.get(name)]
            bars = ax.bar(
                [k - 0.4 + (j + 0.5) * size for k, _, _ in found], [value or 0.0 for _, _, value in found],
                width=0.94 * size, color=SERIES[number % 8], label=legend_label(label), log=log,
            )  # fmt: skip
            texts = [f"{group}, {label}: {value:.4g}".replace("\n", ", ") for _, group, value in found]
            hints += [(bar, [text]) for bar, text in zip(bars, texts, strict=True)]
        ax.set_xticks(range(len(groups)), [_plain(name) for name in groups])
        ax.set_xlim(-0.5, len(groups) - 0.5)
        ax.set_ylabel(_plain(y_label))
        _format_ticks(ax.yaxis)
        if reference is not None:
            ax.axhline(reference, color=LIGHT["ink"], linewidth=1)
        return hints

    return Chart(draw, f"{y_label} of {', '.join(look[name][0] for name in columns)}", title, width)


def standalone(title: str, charts: Sequence[Chart], columns: int = 2) -> str:
    """Return an SVG file with charts side by side, ``columns`` per row.

    Its colours follow the viewer into dark mode, there are no scripts, and the same charts give the same bytes.
    """
    with style():
        root = _svg_root(*_sheet(title, charts, columns), title)
    content = ET.tostring(root, "unicode")
    dark = "".join(
        f'[style*="{part}: {LIGHT[name]}"]{{{part}:{DARK[name]}!important}}'
        for name in LIGHT
        for part in ("fill", "stroke")
        if f"{part}: {LIGHT[name]}" in content
    )
    heading = ET.Element("title")
    heading.text = _plain(title)
    rule = f"<style>@media (prefers-color-scheme:dark){{{dark}}}</style>"
    opened, rest = content.split(">", 1)
    return f"{opened}>{ET.tostring(heading, 'unicode')}{rule}{rest}\n"


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


def _sheet(title: str, charts: Sequence[Chart], columns: int) -> tuple[Figure, Hints]:
    """Return charts side by side under their titles. A legend that serves all is shown once, at the bottom."""
    columns = min(columns, len(charts))
    rows = math.ceil(len(charts) / columns)
    cell = max(chart.width for chart in charts)
    width, height = columns * cell, rows * (max(chart.height for chart in charts) + 30)
    figure = Figure(figsize=(width / POINTS, height / POINTS), layout="constrained")
    heading = textwrap.fill(_plain(title), max(20, int(width / 10)))
    _grow(figure, 26 * (1 + heading.count("\n")))
    figure.suptitle(heading, x=0.01, ha="left", color=LIGHT["ink"])
    panels = figure.subfigures(rows, columns, squeeze=False).flat
    axes, hints = [], []
    for panel, chart in zip(panels, charts, strict=False):
        panel.set_facecolor("none")
        ax = panel.add_subplot()
        hints += chart.draw(ax)
        ax.set_title(_plain(chart.title))
        axes.append(ax)
    named = [set(ax.get_legend_handles_labels()[1]) for ax in axes]
    if all(names <= max(named, key=len) for names in named):
        _add_legend(figure, axes, width)
    else:
        for start in range(0, len(axes), columns):
            row = axes[start : start + columns]
            _grow(figure, max(_add_legend(ax.figure, [ax], cell) for ax in row))
    return figure, hints


def _drawable(line: Line, log: str) -> Line:
    x, y, s = (np.asarray(v, float) for v in (line.x, line.y, line.spread or np.zeros(len(line.y))))
    kept = np.isfinite(y + s) & ((x > 0) | ("x" not in log)) & ((y > 0) | ("y" not in log))
    return replace(line, x=x[kept], y=y[kept], spread=s[kept] if s[kept].any() else None)


def _draw_line(ax: Axes, line: Line, log_y: bool) -> Hints:
    colour, marker = SERIES[line.colour % 8], MARKERS[line.colour % 8] if line.marks else ""
    if line.spread is not None:
        y, s = np.asarray(line.y), np.asarray(line.spread)
        low = np.maximum(y - s, y / 10) if log_y else y - s
        ax.fill_between(line.x, low, y + s, color=colour, alpha=0.16, linewidth=0)
    (artist,) = ax.plot(
        line.x, line.y, color=colour, linestyle="--" if line.dashed else "-", marker=marker,
        markerfacecolor=LIGHT["page"] if line.dashed else colour, label=legend_label(line.label),
    )  # fmt: skip
    texts = [f"{line.label}: {y:.4g} at {x:g}" for x, y in zip(line.x, line.y, strict=True)]
    return [(artist, texts)] if line.marks else []


def _draw_nothing(ax: Axes) -> Hints:
    ax.set_axis_off()
    ax.text(0.5, 0.5, "nothing to draw", ha="center", transform=ax.transAxes)
    return []


def _scale(ax: Axes, log: str, x: Sequence[float], y: Sequence[float]) -> None:
    """Choose the scales of both axes, and give values that are equal but for rounding an axis with a width."""
    ax.set_xmargin(0.02)
    for name, values in (("x", x), ("y", y)):
        low, high = min(values), max(values)
        if name in log:
            getattr(ax, f"set_{name}scale")("log")
            if high / low < 100:
                getattr(ax, f"{name}axis").set_major_locator(LogLocator(subs=(1, 2, 5)))
        elif high - low <= 1e-12 * max(abs(low), abs(high)):
            around = 0.02 * (abs(low) or 1.0)
            getattr(ax, f"set_{name}lim")(low - around, low + around)
    _format_ticks(ax.xaxis, ax.yaxis)


def _format_ticks(*axes: Any) -> None:
    for axis in axes:
        axis.set_major_formatter(FuncFormatter(lambda value, _: tick_label(value)))
        axis.set_minor_locator(NullLocator())


def _plain(text: Any) -> str:
    return FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", str(text))


def legend_label(text: str, most: int = 60) -> str:
    """Return a text for a legend: shortened, and with a leading underscore that does not hide it."""
    shown = _plain(text) if len(text) <= most else _plain(text)[: most - 1] + "…"
    return "\N{ZERO WIDTH SPACE}" + shown if shown.startswith("_") else shown


def _add_legend(figure: Figure | SubFigure, axes: Sequence[Axes], width: float) -> float:
    """Add a legend below the charts, in as many columns as fit; make room for it and return its height."""
    found = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    if not found:
        return 0.0
    lengths = [len(label) for label in found]

    def needed(columns: int) -> float:
        return sum(KEY + LETTER * max(part) for part in np.array_split(lengths, columns))

    columns = next(k for k in range(len(found), 0, -1) if k == 1 or needed(k) <= width)
    height = 6 + LINE_HEIGHT * math.ceil(len(found) / columns)
    figure.legend(list(found.values()), list(found), loc="outside lower left", ncols=columns)
    if isinstance(figure, Figure):
        _grow(figure, height)
    return height


def _grow(figure: Figure, by: float) -> None:
    figure.set_size_inches(figure.get_figwidth(), figure.get_figheight() + by / POINTS)


SVG, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
ET.register_namespace("", SVG[1:-1])
ET.register_namespace("xlink", LINK[1:-5])


def _svg_root(figure: Figure, hints: Hints, salt: str) -> ET.Element:
    """Return a figure as SVG: small, without names of its own except those it refers to, with its hints.

    ``salt`` keeps the names of two figures on a page apart.
    """
    for k, (artist, _) in enumerate(hints):
        artist.set_gid(f"hint{k}")
    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": f"bvat {salt}"}):
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", metadata=metadata)  # type: ignore[arg-type]
    root = ET.fromstring(file.getvalue())
    _add_hints(root, {f"hint{k}": texts for k, (_, texts) in enumerate(hints)})
    # everything is inside the axes; rules for every element would reach the page around the drawing
    _drop(root, {f"{SVG}style", f"{SVG}clipPath", f"{SVG}metadata"})
    root.set("style", "stroke-linejoin: round; stroke-linecap: butt")
    for element in root.iter():
        element.attrib.pop("clip-path", None)
        if element.tag == f"{SVG}g":
            element.attrib.pop("id", None)
            _share_style(element)
        for name in ("d", "x", "y", "transform"):
            if name in element.attrib:
                element.set(name, re.sub(r"\s+", " ", re.sub(r"(\.\d)\d+", r"\1", element.get(name, ""))).strip())
        element.tail = (element.tail or "").strip()
        element.text = (element.text or "").strip()
    width, height = root.get("viewBox", "").split()[2:]
    root.set("width", f"{float(width):g}")
    root.set("height", f"{float(height):g}")
    return root


def _add_hints(root: ET.Element, hints: Mapping[str, Sequence[str]]) -> None:
    for element in list(root.iter(f"{SVG}g")):
        texts = hints.get(element.get("id", ""), ())
        marks = list(element.iter(f"{SVG}use")) if len(texts) > 1 else [element]
        for mark, text in zip(marks, texts, strict=False):
            title = ET.Element(f"{SVG}title")
            title.text = _plain(text)
            mark.insert(0, title)


def _drop(parent: ET.Element, tags: set[str]) -> None:
    for child in list(parent):
        _drop(child, tags)
        if child.tag in tags or (child.tag == f"{SVG}defs" and not len(child)):
            parent.remove(child)


def _share_style(group: ET.Element) -> None:
    """Write what all marks of a line share once."""
    shared = {child.get("style", "") if child.tag == f"{SVG}use" else "" for child in group}
    if len(group) > 1 and len(shared) == 1 and all(shared):
        group.set("style", *shared)
        for child in group:
            del child.attrib["style"]
