"""Everything that ``bvat reproduce`` shows: the page, the figures as files, and a table in Markdown."""

from __future__ import annotations

from pathlib import Path

from bvat.data.files import write_atomic
from bvat.report.markdown import table2_markdown
from bvat.report.paper_charts import figure_file
from bvat.report.paper_page import paper_page, read_paper_results

PAGE = "report.html"


def write_paper_files(folder: Path) -> list[Path]:
    """Write ``report.html``, ``table2.md`` and one SVG file per figure; return their paths.

    Everything is made from the JSON files in the folder, including those of earlier calls.
    """
    results = read_paper_results(folder)
    files = {PAGE: paper_page(results)}
    if "table2" in results:
        files["table2.md"] = table2_markdown(results["table2"])
    files |= {f"{name}.svg": figure_file(result) for name, result in results.items() if "panels" in result}
    for name, content in files.items():
        write_atomic(folder / name, content)
    return [folder / name for name in files]
