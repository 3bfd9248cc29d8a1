"""Write the tables of faults, from results/faults.json: all in results/faults.md, sums in docs/faults.md.

pytest tests/faults --tally results/faults.json && python docs/faults.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bvat.report.pages import replace_between

ROOT = Path(__file__).parents[1]
NUMBERS = ("tried", "survived", "lost", "tracebacks", "code_run")


def table(words: list[str], rows: list[dict[str, Any]]) -> str:
    """Return rows as Markdown: some columns of words, the counts, and their sums in the last row."""
    lines = [
        "| " + " | ".join([*words, "tried", "survived", "lost", "tracebacks", "code run"]) + " |",
        "|" + "---|" * len(words) + "---:|" * len(NUMBERS),
    ]
    lines += [
        "| " + " | ".join([*(row[word] for word in words), *(f"{row[name]:,}" for name in NUMBERS)]) + " |"
        for row in rows
    ]
    sums = [f"**{sum(row[name] for row in rows):,}**" for name in NUMBERS]
    return "\n".join([*lines, "| " + " | ".join(["**all**", *[""] * (len(words) - 1), *sums]) + " |"])


def by_group(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the sums of each group of faults."""
    groups: dict[str, dict[str, Any]] = {}
    for row in rows:
        group = groups.setdefault(row["group"], {"group": row["group"], **dict.fromkeys(NUMBERS, 0)})
        for name in NUMBERS:
            group[name] += row[name]
    return list(groups.values())


if __name__ == "__main__":
    counts = json.loads((ROOT / "results/faults.json").read_text("utf-8"))["tallies"]
    every = table(["group", "fault", "expected"], counts)
    text = f"# Faults\n\nMade by `python docs/faults.py`.\n\n{every}\n"
    (ROOT / "results/faults.md").write_text(text, "utf-8")
    page = ROOT / "docs/faults.md"
    short = table(["group"], by_group(counts))
    page.write_text(replace_between(page.read_text("utf-8"), "table of faults", short), "utf-8")
