"""Table 2 as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def table2_markdown(result: dict[str, Any], methods: Sequence[str] | None = None) -> str:
    """Return Table 2, or some of its rows, with the paper's values in parentheses.

    Accuracies are those of the last or of the best epoch, whichever the paper reports on a data set, or of
    the epoch that the settings of a method keep.
    """
    datasets, best = list(result["datasets"]), result.get("comparable", {}).get("best", ())
    heads = [f"{name} §" if name in best else name for name in datasets]
    lines = ["| test accuracy (%) | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(datasets)]
    rows = {name: result["methods"][name] for name in methods or result["methods"]}
    for method, title in rows.items():
        cells = []
        for dataset in datasets:
            cell = result["cells"][method].get(dataset)
            if cell is None:
                cells.append("–")
                continue
            own_rule = keeps_best(result, method, dataset) and dataset not in best
            ours, published = cell["best" if own_rule or dataset in best else "last"], cell["paper"]
            shown = f"{ours['mean']:.1f} ± {ours['std']:.1f}" if ours["n"] > 1 else f"{ours['mean']:.1f}"
            shown += f"‡ [{cell['last']['mean']:.1f}]" if own_rule else ""
            empty = "†" if result.get("about", {}).get(method) else ""
            cells.append(f"{shown}{empty}" if published is None else f"{shown} ({published['mean']:.1f})")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    notes = "Mean ± standard deviation, the paper's mean in parentheses."
    if methods is None:
        seeds = ", ".join(f"{name} {count}" for name, count in result["seeds"].items())
        others = other_seeds(result)
        notes += f" Number of seeds: {seeds}" + (f" ({others})." if others else ".")
    last = [name for name in datasets if name not in best]
    notes += f" Epoch: the last on {' and '.join(last)}" if last else ""
    notes += "; § the epoch with the best validation accuracy." if best else "."
    if any("†" in line for line in lines):
        notes += " † Not in the paper."
    if any("‡" in line for line in lines):
        notes += " ‡ The epoch that the method's rule of stopping keeps, in brackets the last one."
    return "\n".join(lines) + f"\n\n{notes}\n"


def keeps_best(result: dict[str, Any], method: str, dataset: str) -> bool:
    """Whether the settings of a row keep the best epoch on the validation nodes instead of the last."""
    settings = result["settings"].get(dataset, {}).get(method, {})
    return bool(settings.get("select", "last") != "last")


def other_seeds(result: dict[str, Any]) -> str:
    """Return which rows have another number of seeds than their data sets."""
    other: dict[str, list[str]] = {}
    for method, row in result["cells"].items():
        counts = {dataset: len(cell["seeds"]) for dataset, cell in row.items() if "seeds" in cell}
        differ = {d: n for d, n in counts.items() if n != result["seeds"].get(d)}
        if differ:
            every = set(counts.values())
            words = str(*every) if len(every) == 1 else ", ".join(f"{d} {n}" for d, n in differ.items())
            other.setdefault(words, []).append(result["methods"][method])
    return "; ".join(f"{', '.join(titles)}: {words}" for words, titles in other.items())
