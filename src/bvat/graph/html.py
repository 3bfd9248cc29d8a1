"""Tables that notebooks show."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any


def html_table(title: str, rows: Mapping[str, Any]) -> str:
    """Return what notebooks show: a table of names and values under a title; everything is escaped.

    Example:
        >>> html_table("A < B", {"nodes": 3})
        '<table><caption>A &lt; B</caption><tr><th>nodes</th><td>3</td></tr></table>'
    """
    lines = [f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in rows.items()]
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"
