"""Table 2 as Markdown, for a README."""

from __future__ import annotations

from typing import Any


def table2_markdown(result: dict[str, Any]) -> str:
    """Return Table 2 with the paper's values in parentheses.

    Accuracies are those of the last epoch, or of the epoch that the settings of a method keep.
    """
    datasets = list(result["datasets"])
    lines = ["| test accuracy (%) | " + " | ".join(datasets) + " |", "|---|" + "---:|" * len(datasets)]
    for method, title in result["methods"].items():
        cells = []
        for dataset in datasets:
            cell = result["cells"][method].get(dataset)
            if cell is None:
                cells.append("–")
                continue
            kept = keeps_best(result, method, dataset)
            ours, published = cell["best" if kept else "last"], cell["paper"]
            shown = f"{ours['mean']:.1f} ± {ours['std']:.1f}" if ours["n"] > 1 else f"{ours['mean']:.1f}"
            shown += f"‡ [{cell['last']['mean']:.1f}]" if kept else ""
            empty = "†" if result.get("about", {}).get(method) else ""
            cells.append(f"{shown}{empty}" if published is None else f"{shown} ({published['mean']:.1f})")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    seeds = ", ".join(f"{name} {count}" for name, count in result["seeds"].items())
    notes = f"Mean ± standard deviation, the paper's mean in parentheses. Number of seeds: {seeds}"
    others = other_seeds(result)
    notes += f" ({others})." if others else "."
    if any("†" in line for line in lines):
        notes += " † Not in the paper."
    if any("‡" in line for line in lines):
        notes += (
            " ‡ The epoch that the method's rule of stopping keeps, in brackets the last epoch; all others: "
            "the last. The page of all results has a table for each rule."
        )
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
