"""The frame of every page, and the parts that pages share. All text is escaped here."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from bvat._version import __version__
from bvat.report.palette import page_variables

_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Markup(str):
    """Text that is already HTML; everything else is escaped."""

    __slots__ = ()


def text(value: Any) -> Markup:
    """Return a value as HTML."""
    return value if isinstance(value, Markup) else Markup(_escape(value))


def _escape(value: Any) -> str:
    """Return a value with the characters of tags escaped, and without those that XML forbids."""
    return html.escape(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", str(value)))


def tag(name: str, *content: Any, **attributes: Any) -> Markup:
    """Return an element. ``cls`` stands for ``class``; attributes that are None are omitted.

    Example:
        >>> tag("p", "1 < 2", cls="note")
        '<p class="note">1 &lt; 2</p>'
    """
    given = {("class" if k == "cls" else k.replace("_", "-")): v for k, v in attributes.items()}
    opened = "".join(f' {k}="{_escape(v)}"' for k, v in given.items() if v is not None)
    return Markup(f"<{name}{opened}>{join(content)}</{name}>")


def join(parts: Any) -> Markup:
    """Concatenate parts."""
    return Markup("".join(text(part) for part in parts))


@cache
def _style() -> str:
    return page_variables() + resources.files("bvat.report").joinpath("style.css").read_text("utf-8")


def page(title: str, *content: Any) -> str:
    """Return a complete page that contains no scripts and loads nothing."""
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f'<meta name="generator" content="bvat {text(__version__)}">'
        f"<title>{text(title)}</title><style>{_style()}</style>"
    )
    body = tag("main", tag("h1", title), *content)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def section(title: str, *content: Any, name: str | None = None) -> Markup:
    """Return a section of a page under a heading."""
    return tag("section", tag("h2", title), *content, id=name)


def table(
    header: Sequence[Any], rows: Sequence[Sequence[Any]], *, numbers: bool = True, cls: str | None = None
) -> Markup:
    """Return a table that scrolls horizontally on narrow screens; all but the first column hold numbers.

    A cell may already be a ``td`` element.
    """
    kind = "n" if numbers else None
    head = [tag("th", cell, cls=kind if i else None, scope="col") for i, cell in enumerate(header)]
    body = []
    for first, *rest in rows:
        cells = [
            cell if isinstance(cell, Markup) and cell.startswith("<td") else tag("td", cell, cls=kind)
            for cell in rest
        ]
        body.append(tag("tr", tag("th", first, scope="row"), *cells))
    whole = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body), cls=cls)
    return tag("div", whole, cls="scroll", tabindex="0")


def tiles(values: Mapping[str, Any]) -> Markup:
    """Return the most important numbers in large type."""
    return tag(
        "div", *[tag("div", tag("b", v), tag("span", k), cls="tile") for k, v in values.items()], cls="tiles"
    )


VERDICT_MARKS = {True: ("yes", "✓ yes"), False: ("no", "✗ no"), None: ("so", "note")}


def claim_list(claims: Sequence[Mapping[str, Any]]) -> Markup:
    """Return claims with their verdicts, in words as well as in colour."""
    items = [
        tag(
            "li",
            tag("span", VERDICT_MARKS[c["holds"]][1], cls=f"mark {VERDICT_MARKS[c['holds']][0]}"),
            tag("span", c["text"]),
        )
        for c in claims
    ]
    return tag("ul", *items, cls="claims") if items else Markup("")


def settings_table(settings: Mapping[str, Mapping[str, Any]]) -> Markup:
    """Return a table of the settings that differ, one column each, and a line with those they share."""
    names = list(dict.fromkeys(name for values in settings.values() for name in values))
    columns = list(settings.values())
    same = [name for name in names if all(column.get(name) == columns[0].get(name) for column in columns)]
    rows = [[name, *[_setting(column.get(name)) for column in columns]] for name in names if name not in same]
    shared = ", ".join(f"{name} {_setting(columns[0].get(name))}" for name in same) if columns else ""
    parts = [table(["setting", *settings], rows)] if rows else []
    return join([*parts, tag("p", f"Shared by all: {shared}." if rows else f"{shared}.", cls="soft")])


def _setting(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def provenance(command: str, versions: Mapping[str, str | None], sources: Sequence[str] = ()) -> Markup:
    """Return the command and the versions that produced some numbers.

    ``sources`` are the digests of the sources that the runs were made with, if they were kept.
    """
    said = ", ".join(f"{name} {value}" for name, value in versions.items() if value is not None)
    parts = [tag("pre", command), tag("p", said, cls="soft")]
    if sources and list(sources) != [versions.get("source")]:
        text = f"Runs that were finished before are among them, made with source {', '.join(sources)}."
        parts.append(tag("p", text, cls="soft"))
    return join(parts)
