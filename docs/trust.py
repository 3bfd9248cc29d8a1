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
NAMES = ("trust", "suggest", "times")
SETS = {
    "bvat": "`--coverage 0.9`",
    "bvat weighted": "`--no-per-class`",
    "snaps out of fold": "SNAPS, the same held-out predictions",
    "snaps split": "SNAPS, half of the labels for training",
}


def aims(trust: Mapping[str, Any], suggest: Mapping[str, Any], times: Mapping[str, Any]) -> str:
    """Return what was aimed at, what was measured, and whether that meets it."""
    rows = [
        [name, f"{each['measured']:.2f}", each["met"]]
        for name, each in trust["targets"].items()
        if "regained" not in name
    ]
    back = trust["regained"]
    half = "at least half of the lost accuracy is regained: "
    draws = trust["regained_by_draw"].values()
    about = f"{back['of_means']:.2f} (by draw {min(draws):.2f} to {max(draws):.2f})"
    rows.append([f"{half}mean regained / mean lost", about, back["of_means"] >= 0.5])
    ratios = back["mean_of_ratios"]
    rows.append([f"{half}mean over graphs of regained / lost", f"{ratios:.2f}", ratios >= 0.5])
    gains = [f"{suggest['gain_at_10']:+.2f}", f"{suggest['worst_gain_at_10']:+.2f}"]
    halves = [", ".join(found) or "none" for found in suggest["graphs_with_half_the_labels"].values()]
    measured = zip(suggest["targets"].items(), gains + halves, strict=True)
    rows += [[name, found, met] for (name, met), found in measured]
    for command, each in times["commands"].items():
        spent = each["seconds"]
        rows.append(
            [
                f"`{command}` on 22,470 nodes at most {times['most']:.0f} s",
                f"{spent:.1f} s",
                spent <= times["most"],
            ]
        )
    return table(["aim", "measured", "met"], [[*row[:2], "yes" if row[2] else "no"] for row in rows])


def sets(trust: Mapping[str, Any], *_: Any) -> str:
    """Return coverage and size of sets beside those of TorchCP."""
    rows = (
        [title, f"{found['coverage']:.3f}", f"{found['worst_class']:.3f}", f"{found['size']:.2f}"]
        for name, title in SETS.items()
        if (found := trust["sets"]["mean"].get(name))
    )
    return table(["sets", "coverage", "coverage of the worst class", "classes"], rows)


def graphs(trust: Mapping[str, Any], suggest: Mapping[str, Any], *_: Any) -> str:
    """Return the measurements by graph."""
    head = ["graph", "draws", "accuracy", "calibration error", "coverage", "classes in a set"]
    head += ["draws with wrong labels", "AUROC", "accuracy lost", "regained", "10 suggested - 10 random"]
    rows = []
    for name, row in trust["by_graph"].items():
        covered, size = (row["sets"]["bvat"][key] for key in ("coverage", "size"))
        wrong, found = row.get("flipped"), suggest["by_graph"].get(name)
        cells = [name, str(len(row["draws"])), f"{row['accuracy']:.1f} %"]
        cells += [f"{row['calibration_error']:.1f} %", f"{covered:.3f}", f"{size:.2f}"]
        cells += (
            ["-"] * 4
            if wrong is None
            else [
                str(len(wrong["draws"])),
                f"{wrong['auroc']:.2f}",
                *(f"{wrong[n]:.1f}" for n in ("lost", "regained")),
            ]
        )
        rows.append([*cells, _gain(found["difference"]) if found else "-"])
    return table(head, rows)


def _gain(found: Mapping[str, Any]) -> str:
    return f"{found['mean']:+.1f} ± {found['std']:.1f} ({found['n']})"


def with_tables(text: str) -> str:
    """Return the page with its current tables."""
    found = [json.loads((RESULTS / f"{name}.json").read_text("utf-8")) for name in NAMES]
    for make in (aims, sets, graphs):
        text = replace_between(text, make.__name__, make(*found))
    return text


if __name__ == "__main__":
    page = HERE / "trust.md"
    page.write_text(with_tables(page.read_text("utf-8")), "utf-8")
