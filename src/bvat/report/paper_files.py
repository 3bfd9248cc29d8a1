"""Everything that ``bvat reproduce`` shows: the page, the figures as files, and a table for a README."""

from __future__ import annotations

from pathlib import Path

from bvat.data.files import write_atomic
from bvat.report.figure_files import matplotlib_there, write_figure
from bvat.report.markdown import table2_markdown
from bvat.report.paper_page import paper_page, read_results

PAGE = "report.html"


def write_paper_files(folder: Path) -> list[Path]:
    """Write ``report.html``, ``table2.md`` and, where matplotlib is installed, ``figN.svg`` and ``figN.png``.

    All of it comes from the JSON files in the folder, those of earlier calls included.
    """
    results = read_results(folder)
    written = [folder / PAGE]
    write_atomic(folder / PAGE, paper_page(results))
    if "table2" in results:
        write_atomic(folder / "table2.md", table2_markdown(results["table2"]))
        written.append(folder / "table2.md")
    if matplotlib_there():
        for name, result in results.items():
            if name.startswith("fig"):
                written += write_figure(result, folder)
    return written
