"""A drawing with its legend: embedded in a page, or side by side with others in a standalone SVG file."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bvat.report.html import Markup, join, tag
from bvat.report.palette import DARK, LIGHT

WIDTH, HEIGHT = 440, 290
MARGIN, LINE_HEIGHT = 14, 18
FONT_SIZE, TITLE_SIZE = 12, 15
LETTER = 0.6
"""Typical width of a letter relative to the font size; viewers use fonts of their own."""


@dataclass(frozen=True)
class Key:
    """An entry of a legend: a swatch, ``width`` x 12, and its label."""

    label: str
    swatch: Markup
    width: int = 26


@dataclass(frozen=True)
class Drawing:
    """SVG elements on an area of ``width`` x ``height``.

    Attributes:
        body: the elements.
        label: what the drawing shows, for readers who cannot see it.
        keys: the entries of the legend.
        title: the heading above the drawing.
    """

    body: Markup
    label: str
    keys: tuple[Key, ...] = ()
    title: str = ""
    width: float = WIDTH
    height: float = HEIGHT

    def figure(self, caption: Any = "") -> Markup:
        """Return the drawing as a figure of a page, with its title, its legend and an optional caption."""
        view = f"0 0 {self.width} {self.height}"
        parts = [tag("h3", self.title)] if self.title else []
        parts += [tag("svg", self.body, viewBox=view, role="img", aria_label=self.label), legend(self.keys)]
        return tag("figure", *parts, *([tag("figcaption", caption)] if caption else []))


def dot_key(label: str, fill: str, *, outline: str = "none", radius: float = 5) -> Key:
    """Return an entry whose swatch is a dot."""
    dot = tag("circle", cx=7, cy=6, r=radius, fill=fill, stroke=outline, stroke_width=1.3)
    return Key(label, dot, width=14)


def legend(keys: Sequence[Key]) -> Markup:
    """Return a legend for a page."""
    if not keys:
        return Markup("")
    swatches = [
        tag(
            "svg",
            key.swatch,
            viewBox=f"0 0 {key.width} 12",
            style=f"width: {key.width}px",
            aria_hidden="true",
        )
        for key in keys
    ]
    return tag(
        "div",
        *[tag("span", swatch, key.label) for swatch, key in zip(swatches, keys, strict=True)],
        cls="legend",
    )


def standalone(title: str, drawings: Sequence[Drawing], columns: int = 2) -> str:
    """Return an SVG file with drawings side by side, ``columns`` per row.

    Titles and legends are inside, the colours follow the viewer into dark mode, there are no scripts, and the
    same drawings give the same bytes. A legend that serves all drawings is shown once, at the bottom.
    """
    shared = next(
        (d.keys for d in drawings if all(set(other.keys) <= set(d.keys) for other in drawings)), None
    )
    columns = min(columns, len(drawings))
    cell = max(drawing.width for drawing in drawings)
    inner = columns * cell
    heading, y = _title(title, inner)
    parts = [heading]
    for start in range(0, len(drawings), columns):
        row = drawings[start : start + columns]
        panels = [_panel(drawing, own_legend=shared is None) for drawing in row]
        parts += [_moved(panel, MARGIN + k * cell, y) for k, (panel, _) in enumerate(panels)]
        y += max(height for _, height in panels) + MARGIN
    if shared:
        keys, height = _svg_legend(shared, inner)
        parts.append(_moved(keys, MARGIN, y))
        y += height
    return _document(join(parts), title, inner + 2 * MARGIN, y + MARGIN / 2)


def _panel(drawing: Drawing, *, own_legend: bool) -> tuple[Markup, float]:
    """Return a drawing under its title, with its own legend if asked, and the height of it all."""
    parts, y = [], 0.0
    if drawing.title:
        parts.append(tag("text", drawing.title, x=drawing.width / 2, y=FONT_SIZE, text_anchor="middle",
                         font_weight="bold"))  # fmt: skip
        y += LINE_HEIGHT + 4
    parts.append(_moved(drawing.body, 0, y))
    y += drawing.height
    if own_legend:
        keys, height = _svg_legend(drawing.keys, drawing.width)
        parts.append(_moved(keys, 0, y))
        y += height
    return join(parts), y


def _svg_legend(keys: Sequence[Key], width: float) -> tuple[Markup, float]:
    """Return entries from left to right, on as many lines as they need, and their height."""
    parts, x, y = [], 0.0, 0.0
    for key in keys:
        taken = key.width + 6 + _width(key.label)
        if x and x + taken > width:
            x, y = 0.0, y + LINE_HEIGHT
        label = tag("text", key.label, x=key.width + 6, y=10)
        parts.append(_moved(join([key.swatch, label]), x, y))
        x += taken + 16
    return join(parts), y + LINE_HEIGHT if keys else 0.0


def _width(text: str) -> float:
    """Return about how wide a text is in the usual sans-serif fonts."""
    narrow, wide = sum(c in " fijlrt.,:;'()|" for c in text), sum(c in "mwMW%" for c in text)
    capital = sum(c.isupper() for c in text)
    return FONT_SIZE * (LETTER * len(text) - 0.25 * narrow + 0.25 * wide + 0.06 * capital)


def _title(title: str, width: float) -> tuple[Markup, float]:
    """Return the title on as many lines as it needs, and the height it takes."""
    lines = textwrap.wrap(title, max(20, int(width / (LETTER * TITLE_SIZE))))
    step = TITLE_SIZE + 5
    parts = [
        tag("text", line, x=MARGIN, y=MARGIN + TITLE_SIZE + k * step, font_size=TITLE_SIZE,
            font_weight="bold", fill="var(--ink)")
        for k, line in enumerate(lines)
    ]  # fmt: skip
    return join(parts), 2 * MARGIN + step * len(lines)


def _moved(content: Markup, x: float, y: float) -> Markup:
    return tag("g", content, transform=f"translate({x:g} {y:g})")


def _document(body: Markup, title: str, width: float, height: float) -> str:
    """Return a whole SVG file. Colours are attributes, which every viewer knows, and CSS turns them dark."""
    paper = tag("rect", width="100%", height="100%", fill="var(--page)")
    root = tag("g", body, fill="var(--soft)", font_family="system-ui, sans-serif", font_size=FONT_SIZE)
    content = join([paper, root])
    used = [name for name in LIGHT if f"var(--{name})" in content]
    dark = "".join(
        f'[{part}="{LIGHT[name]}"]{{{part}:{DARK[name]}}}' for name in used for part in ("fill", "stroke")
    )
    content = Markup(re.sub(r"var\(--([\w-]+)\)", lambda found: LIGHT[found[1]], content))
    return tag(
        "svg",
        tag("title", title),
        tag("style", Markup(f"@media (prefers-color-scheme:dark){{{dark}}}")),
        content,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        width=f"{width:g}",
        height=f"{height:g}",
        role="img",
    ) + "\n"  # fmt: skip
