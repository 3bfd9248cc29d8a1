"""Figures of matplotlib as SVG: small, the same bytes every time, in the colours of the page around them."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

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
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML and HTML do not allow."""

SVG, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
ET.register_namespace("", SVG[1:-1])
ET.register_namespace("xlink", LINK[1:-5])


def embedded(figure: Figure, label: str) -> Markup:
    """Return a figure to be embedded in a page, whose variables define the colours."""
    root = _svg_root(figure, label)
    root.set("role", "img")
    root.set("aria-label", plain(label))
    names = {value: f"var(--{name})" for name, value in LIGHT.items()}
    content = ET.tostring(root, "unicode")
    return Markup(re.sub("#[0-9a-f]{6}", lambda found: names.get(found[0], found[0]), content))


def document(figure: Figure, title: str) -> str:
    """Return a figure as a file of its own. CSS turns its colours dark for viewers that know it."""
    content = ET.tostring(_svg_root(figure, title), "unicode")
    dark = "".join(
        f'[style*="{part}: {LIGHT[name]}"]{{{part}:{DARK[name]}!important}}'
        for name in LIGHT
        for part in ("fill", "stroke")
        if f"{part}: {LIGHT[name]}" in content
    )
    heading = ET.Element("title")
    heading.text = plain(title)
    opened, rest = content.split(">", 1)
    rule = f"<style>@media (prefers-color-scheme:dark){{{dark}}}</style>"
    return f"{opened}>{ET.tostring(heading, 'unicode')}{rule}{rest}\n"


def plain(text: Any) -> str:
    return FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", str(text))


def _svg_root(figure: Figure, salt: str) -> ET.Element:
    """Return a figure as SVG: small, without names of its own except those it refers to.

    ``salt`` keeps the names of two figures on a page apart.
    """
    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": f"bvat {plain(salt)}"}):
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(file, metadata=metadata)  # savefig draws everything twice
    root = ET.fromstring(file.getvalue())
    # everything is inside the axes; rules for every element would reach the page around the drawing
    _drop(root, {f"{SVG}style", f"{SVG}clipPath", f"{SVG}metadata"})
    root.set("style", "stroke-linejoin: round; stroke-linecap: butt")
    for element in root.iter():
        element.attrib.pop("clip-path", None)
        if element.tag == f"{SVG}g":
            element.attrib.pop("id", None)
        for name in {"d", "x", "y", "transform"} & element.attrib.keys():
            one_decimal = re.sub(r"(\.\d)\d+", r"\1", element.attrib[name])
            element.set(name, " ".join(one_decimal.split()))
        if element.get("transform", "").startswith("rotate(-0 "):
            del element.attrib["transform"]
        element.tail = (element.tail or "").strip()
        element.text = (element.text or "").strip()
    width, height = root.get("viewBox", "").split()[2:]
    root.set("width", f"{float(width):g}")
    root.set("height", f"{float(height):g}")
    return root


def _drop(parent: ET.Element, tags: set[str]) -> None:
    for child in list(parent):
        _drop(child, tags)
        if child.tag in tags or (child.tag == f"{SVG}defs" and not len(child)):
            parent.remove(child)
