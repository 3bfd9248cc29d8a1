"""Write the table of costs into docs/which-method.md, from results/bench/fits.json.

python -m bvat.bench.fits cora pubmed && python docs/which_method.py
"""

from __future__ import annotations

import json
from pathlib import Path

from bvat.report.markers import replace_between
from bvat.tuning.variants import Variant

HERE = Path(__file__).parent


def table(file: Path) -> str:
    """Return the processor seconds per fit as Markdown, one row per method."""
    fits = json.loads(file.read_text("utf-8"))["fits"]
    graphs = list(dict.fromkeys(graph for row in fits.values() for graph in row))
    lines = ["| seconds per fit | " + " | ".join(graphs) + " |", "|---|" + "---:|" * len(graphs)]
    for name, row in fits.items():
        cells = [f"{row[graph]['cpu_seconds']:.2g}" if graph in row else "–" for graph in graphs]
        lines.append(f"| {Variant.parse(name).title} (`{name}`) | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def with_table(text: str) -> str:
    """Return the page with the current table between its marks."""
    return replace_between(text, "table of costs", table(HERE.parent / "results" / "bench" / "fits.json"))


if __name__ == "__main__":
    page = HERE / "which-method.md"
    page.write_text(with_table(page.read_text("utf-8")), "utf-8")
