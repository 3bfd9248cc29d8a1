"""Write the table of faults into docs/faults.md, from the counts in results/faults.json.

pytest tests/faults --tally results/faults.json && python docs/faults.py
"""

from __future__ import annotations

import json
from pathlib import Path

from bvat.report.markers import replace_between

HERE = Path(__file__).parent


def table(counts: Path) -> str:
    """Return the table as Markdown, with the sums in the last row."""
    rows = json.loads(counts.read_text("utf-8"))["tallies"]
    numbers = ("tried", "survived", "lost", "tracebacks", "code_run")
    lines = [
        "| kind | fault or attack | what must happen | tried | survived | lost | tracebacks | code run |",
        "|---|---|---|" + "---:|" * len(numbers),
    ]
    for row in rows:
        cells = [row["group"], row["fault"], row["expected"], *[f"{row[name]:,}" for name in numbers]]
        lines.append("| " + " | ".join(cells) + " |")
    sums = [f"**{sum(row[name] for row in rows):,}**" for name in numbers]
    lines.append("| " + " | ".join(["**all**", "", "", *sums]) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    page, counts = HERE / "faults.md", HERE.parent / "results" / "faults.json"
    page.write_text(replace_between(page.read_text("utf-8"), "table of faults", table(counts)), "utf-8")
