"""Table 2 as Markdown, for a README."""

from __future__ import annotations

from typing import Any


def table2_markdown(result: dict[str, Any], selection: str = "last") -> str:
    """Return Table 2 with the paper's values in parentheses."""
    datasets = list(result["datasets"])
    lines = ["| test accuracy (%) | " + " | ".join(datasets) + " |", "|---|" + "---:|" * len(datasets)]
    for method, title in result["methods"].items():
        cells = []
        for dataset in datasets:
            cell = result["cells"][method].get(dataset)
            if cell is None:
                cells.append("–")
                continue
            ours, published = cell[selection], cell["paper"]
            shown = f"{ours['mean']:.1f} ± {ours['std']:.1f}"
            cells.append(shown if published is None else f"{shown} ({published['mean']:.1f})")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    seeds = ", ".join(f"{name} {count}" for name, count in result["seeds"].items())
    return (
        "\n".join(lines)
        + f"\n\nMean ± standard deviation, the paper's mean in parentheses. Number of seeds: {seeds}.\n"
    )
