"""What notebooks show of an object: a short table, and a plot.

Charts are drawn by a higher package. ``bvat/__init__.py`` tells :class:`Plottable` which one, so that nothing
here has to import it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any, ClassVar


def html_table(title: str, rows: Mapping[str, Any]) -> str:
    """Return a table of names and values under a title; everything is escaped.

    Example:
        >>> html_table("A < B", {"nodes": 3})
        '<table><caption>A &lt; B</caption><tr><th>nodes</th><td>3</td></tr></table>'
    """
    lines = [f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in rows.items()]
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"


def percent(value: float | None) -> str:
    """Return a percentage with two decimals, or a dash."""
    return "-" if value is None else f"{value:.2f} %"


class Plottable:
    """Adds ``plot()`` to the objects that can be drawn."""

    draw: ClassVar[Callable[[Any], Any]]

    def plot(self) -> Any:
        """Return a figure: notebooks show it, ``.save("figure.svg")`` writes it, ``.svg`` is its text."""
        return Plottable.draw(self)
