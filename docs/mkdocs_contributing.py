"""A hook of mkdocs: show CONTRIBUTING.md, at the root of the repository, as a page of the guide."""

from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill the page for contributors; the links in the file are relative to the root."""
    if page.file.src_uri != "contributing.md":
        return markdown
    return (ROOT / "CONTRIBUTING.md").read_text("utf-8").replace("](docs/", "](")
