"""The colours of pages and charts, light and dark.

Drawings refer to a colour as ``var(--name)``. A page defines the variables; a standalone file replaces them.
The colours of series, c0 to c7, can be told apart by colour-blind readers.
"""

from __future__ import annotations

SERIES_COLOURS = 8

LIGHT = {
    "page": "#ffffff", "card": "#f6f7f9", "ink": "#1b1f24", "soft": "#57606a", "line": "#d5dae0",
    "grid": "#e6e9ed", "c0": "#0072b2", "c1": "#c44e00", "c2": "#007a5a", "c3": "#a3407f", "c4": "#8a6d00",
    "c5": "#0a9bab", "c6": "#6b5bb5", "c7": "#666666", "good": "#0a5c3e", "good-back": "#d3f0e2",
    "fair": "#34495e", "fair-back": "#e4ebf3", "bad": "#8a2c00", "bad-back": "#fde3d3", "heat": "0, 114, 178",
}  # fmt: skip
DARK = {
    "page": "#14171b", "card": "#1d2127", "ink": "#e8eaed", "soft": "#a3abb5", "line": "#363c45",
    "grid": "#2a2f37", "c0": "#5ab4f0", "c1": "#ff9a52", "c2": "#3ccf9f", "c3": "#e58fc4", "c4": "#e6c84a",
    "c5": "#4fdcec", "c6": "#b3a6f0", "c7": "#b5b5b5", "good": "#7fe0b5", "good-back": "#123a2b",
    "fair": "#c3d0de", "fair-back": "#27313d", "bad": "#ffb48a", "bad-back": "#4a2411",
    "heat": "90, 180, 240",
}  # fmt: skip
PRINT = LIGHT | {"ink": "#000000", "soft": "#444444", "line": "#bbbbbb"}


def colour(number: int) -> str:
    """Return the colour of a series."""
    return f"var(--c{number % SERIES_COLOURS})"


def page_variables() -> str:
    """Return the CSS that defines the colours on a page."""
    light, dark, printed = (
        "".join(f"--{name}: {value}; " for name, value in colours.items()) for colours in (LIGHT, DARK, PRINT)
    )
    return (
        f":root {{ color-scheme: light dark; {light}}}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark}}} }}\n"
        f"@media print {{ :root {{ {printed}}} }}\n"
    )
