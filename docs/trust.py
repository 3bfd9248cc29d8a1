"""Write the measured tables of docs/trust.md, from results/trust.

python benchmarks/trust.py && python docs/trust.py
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from runpy import run_path
from typing import Any

from bvat.report.pages import replace_between

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "trust"
table = run_path(str(HERE / "few_labels.py"))["table"]
NAMES = ("trust", "suggest")
SETS = {
    "bvat": "`--coverage 0.9`",
    "bvat weighted": "`--no-per-class`",
    "snaps out of fold": "SNAPS, the same held-out predictions",
    "snaps split": "SNAPS, half of the labels for training",
}


def aims(trust: Mapping[str, Any], suggest: Mapping[str, Any]) -> str:
    """Return what was aimed at and what was reached, then and with newer code."""
    newer = [json.loads((RESULTS / "newer" / f"{name}.json").read_text("utf-8")) for name in NAMES]
    columns = [judged(trust, suggest), judged(*newer)]
    about = [f"{sum(row['difference']['n'] for row in newer[1]['by_graph'].values())} of suggestions"]
    about.insert(0, f"{newer[0]['runs']} runs of {len(newer[0]['by_graph'])} graphs")
    rows = [[name, found, columns[1][name]] for name, found in columns[0].items()]
    return table(["aim", "measured, met", f"with newer code, {', '.join(about)}"], rows)


def judged(trust: Mapping[str, Any], suggest: Mapping[str, Any]) -> dict[str, str]:
    """Return by aim what was measured, and whether that meets it."""
    gains = [f"{suggest['gain_at_10']:+.2f}", f"{suggest['worst_gain_at_10']:+.2f}"]
    halves = [", ".join(suggest["graphs_with_half_the_labels"][count]) or "none" for count in ("4", "10")]
    found = {name: (f"{each['measured']:.2f}", each["met"]) for name, each in trust["targets"].items()}
    for (name, met), measured in zip(suggest["targets"].items(), gains + halves, strict=True):
        found[name] = measured, met
    return {name: f"{measured}, {'yes' if met else 'no'}" for name, (measured, met) in found.items()}


def sets(trust: Mapping[str, Any], suggest: Mapping[str, Any]) -> str:
    """Return coverage and size of sets beside those of TorchCP."""
    rows = (
        [title, f"{found['coverage']:.3f}", f"{found['worst_class']:.3f}", f"{found['size']:.2f}"]
        for name, title in SETS.items()
        if (found := trust["sets"].get(name))
    )
    return table(["sets", "coverage", "coverage of the worst class", "classes"], rows)


def graphs(trust: Mapping[str, Any], suggest: Mapping[str, Any]) -> str:
    """Return the measurements by graph."""
    head = ["graph", "draws", "accuracy", "calibration error", "coverage", "classes in a set"]
    head += ["wrong labels: AUROC", "accuracy with them", "without suspects", "10 suggested - 10 random"]

    def gain(name: str) -> str:
        found = suggest["by_graph"].get(name)
        if found is None:
            return "-"
        difference = found["difference"]
        return f"{difference['mean']:+.1f} ± {difference['std']:.1f} ({difference['n']})"

    rows = []
    for name, row in trust["by_graph"].items():
        covered, size = (row["sets"]["bvat"][key] for key in ("coverage", "size"))
        cells = [
            name,
            str(len(row["draws"])),
            f"{row['accuracy']:.1f} %",
            f"{row['calibration_error']:.1f} %",
        ]
        cells += [f"{covered:.3f}", f"{size:.2f}", f"{row['auroc']:.2f}"]
        rows.append([*cells, *(f"{row[f'{n}_accuracy']:.1f} %" for n in ("flipped", "mended")), gain(name)])
    return table(head, rows)


def with_tables(text: str) -> str:
    """Return the page with its current tables."""
    found = [json.loads((RESULTS / f"{name}.json").read_text("utf-8")) for name in NAMES]
    for make in (aims, sets, graphs):
        text = replace_between(text, make.__name__, make(*found))
    return text


if __name__ == "__main__":
    page = HERE / "trust.md"
    page.write_text(with_tables(page.read_text("utf-8")), "utf-8")
