"""Text between two comments of a Markdown page, which commands make anew."""

from __future__ import annotations


def replace_between(text: str, name: str, content: str) -> str:
    """Return a page with ``content`` between ``<!-- name -->`` and ``<!-- end of name -->``."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, rest = text.split(start)
    after = rest.split(end)[1]
    return f"{before}{start}\n\n{content.strip()}\n\n{end}{after}"
