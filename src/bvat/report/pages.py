"""The frame of every page, and what the templates share. Templates escape all text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from bvat._version import __version__
from bvat.report.svg import DARK, FORBIDDEN, LIGHT

PRINT = LIGHT | {"ink": "#000000", "soft": "#444444", "line": "#bbbbbb"}


class Cell(NamedTuple):
    """A cell that is not just a number: words, or with a style bold text over lines in small type."""

    text: str
    small: Sequence[str] = ()
    style: str = ""


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("bvat.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=StrictUndefined, keep_trailing_newline=True,
    )  # fmt: skip
    made.globals |= {"version": __version__, "light": LIGHT, "dark": DARK, "printed": PRINT}
    made.globals["compared_settings"] = compared_settings
    return made


def render(template: str, **values: Any) -> str:
    """Return a complete page without scripts, which loads nothing and holds only characters HTML allows."""
    return FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", _environment().get_template(template).render(values))


def signed(value: float, digits: int = 1) -> str:
    """Return a difference with its sign."""
    shown = f"{value:+.{digits}f}"
    return shown.replace("-", "−") if float(shown) else shown[1:]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown, with numbers at the right."""
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def compared_settings(settings: Mapping[str, Mapping[str, Any]]) -> tuple[list[list[str]], str]:
    """Return the settings that differ, one row each, and those that all share in one line."""
    columns = list(settings.values())
    rows, shared = [], []
    for name in dict.fromkeys(name for values in columns for name in values):
        values = [column.get(name) for column in columns]
        shown = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
        if all(value == values[0] for value in values):
            shared.append(f"{name} {shown[0]}")
        else:
            rows.append([name, *shown])
    return rows, ", ".join(shared)


def replace_between(text: str, name: str, content: str) -> str:
    """Return a Markdown page with ``content`` between ``<!-- name -->`` and ``<!-- end of name -->``."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, rest = text.split(start)
    after = rest.split(end)[1]
    return f"{before}{start}\n\n{content.strip()}\n\n{end}{after}"
