"""Write the measured tables of docs/certified.md, from results/certified.

python benchmarks/certified.py --picture --out results/certified/curves.json && python docs/certified.py
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from bvat.report.pages import replace_between

HERE = Path(__file__).parent
SHOWN = "VAT 64"
"""The run whose states at a few norms are shown: the one that is known least about."""
RESULTS = HERE.parent / "results" / "certified"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown whose first column is text."""
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def ratios(found: Mapping[str, Any]) -> str:
    """Return the median of certified / attacked norm by run and graph, and how many pairs were tried."""
    graphs, asked = found["graphs"], found["asked"]
    names = dict.fromkeys(name for rows in graphs.values() for name in rows)

    def few(row: Mapping[str, Any]) -> bool:
        return bool(row.get("nodes", asked["nodes"]) < asked["nodes"])

    def cell(row: Mapping[str, Any] | None) -> str:
        if row is None:
            return "-"
        marks = ("*" if row["select"] == "last" else "") + ("†" if few(row) else "")
        return f"{row['median_ratio']:.2f}{marks}"

    body = ([name, *(cell(rows.get(name)) for rows in graphs.values())] for name in names)
    every = [row for rows in graphs.values() for row in rows.values()]
    pairs, broken = (sum(row[key] for row in every) for key in ("pairs", "violations"))
    fewest = min(row.get("nodes", asked["nodes"]) for row in every)
    return (
        table(["median certified / attacked", *graphs], body)
        + f"\n\nOne seed, {asked['nodes']} nodes each (†: {fewest}). \\*: weights of the last epoch, because "
        "those with the best validation accuracy come from before the regulariser. At exactly the certified "
        f"norm, {asked['steps']} steps of projected gradient ascent from {asked['starts']} starts to every "
        f"class: {pairs:,} pairs of a node and a change, {broken} of which changed the class."
    )


def budgets(found: Mapping[str, Any]) -> str:
    """Return the ratios for each budget, and the share of nodes in each state at a few norms."""
    near, states = [], []
    runs = [(graph, name, row) for graph, rows in found["graphs"].items() for name, row in rows.items()]
    every = [about for *_, row in runs for about in row["budgets"].values()]
    for graph, name, row in runs:
        most = max(about["most_between"] for about in row["budgets"].values())
        cells = (f"{about['median_ratio']:.3f}" for about in row["budgets"].values())
        near.append([graph, name, *cells, f"{most:.0f} %"])
        for budget, about in row["budgets"].items() if name == SHOWN else ():
            shares = (" / ".join(f"{part:.0f}" for part in at.values()) for at in about["states"].values())
            states.append([graph, budget, *shares])
    pairs, broken, missed = (
        sum(about[key] for about in every) for key in ("pairs", "violations", "not_found")
    )
    return (
        table(["median certified / attacked", "", *runs[0][2]["budgets"], "most between"], near)
        + "\n\nOne seed, all nodes. Most between: the largest share of nodes that are neither proved nor "
        f"broken, at any norm and for any budget. Nodes for which no change was found: {missed}. Of "
        f"{pairs:,} changes of exactly the certified norm that an attack tried, {broken} changed a class.\n\n"
        + table([f"{SHOWN}: proved / broken / between in %", "budget", *every[0]["states"]], states)
        + "\n\nThe norms are relative to that of a feature row."
    )


def spread(values: Sequence[float], key: str) -> str:
    """Return mean ± standard deviation; the mean alone of a single seed."""
    digits = 1 if key == "test_accuracy" else 3
    shown = f"{mean(values):.{digits}f}"
    return shown + (f" ± {stdev(values):.{digits}f}" if len(values) > 1 else "")


def curves(found: Mapping[str, Any]) -> str:
    """Return accuracy and median norms by graph and method: mean ± standard deviation over seeds."""
    rows = []
    for graph, methods in found["graphs"].items():
        for k, (name, runs) in enumerate(methods.items()):
            keys = ("test_accuracy", "median_certified", "median_attacked")
            cells = (spread([run[key] for run in runs.values()], key) for key in keys)
            last = any(run["select"] == "last" for run in runs.values())
            about = ["" if k else graph, name + ("*" if last else ""), str(len(runs))]
            rows.append([*about, *cells])
    head = ["graph", "method", "seeds", "test accuracy", "median certified", "median attacked"]
    return table(head, rows)


def exact(found: Mapping[str, Any]) -> str:
    """Return how near the true radius of some nodes is to what is proved, and to what the attack found."""
    names = dict.fromkeys(name for rows in found["graphs"].values() for name in rows)
    every = [(graph, name) for graph in found["graphs"] for name in names if name in found["graphs"][graph]]

    def cells(graph: str, name: str) -> list[str]:
        row = found["graphs"][graph][name]
        measured = (f"{row[key]:.4f}" for key in ("certified_by_true", "true_by_attacked"))
        return [graph, name, *measured, f"{100 * row['share_of_bound']:.0f} %"]

    head = ["graph", "method", "median certified / true", "median true / attacked", "share of the bound"]
    return table(head, (cells(*each) for each in every))


def penalty(found: Mapping[str, Any]) -> str:
    """Return accuracy and median radius of the penalties beside other methods: the same seeds of each."""
    before = json.loads((RESULTS / "curves.json").read_text("utf-8"))["graphs"]
    rows = []
    for graph, kinds in found["graphs"].items():
        others = {name: before[graph][name] for name in ("GCN", "VAT", "O-BVAT")}
        for k, (name, runs) in enumerate({**others, **kinds}.items()):
            same = [runs[str(seed)] for seed in range(found["asked"]["seeds"]) if str(seed) in runs]
            cells = (spread([run[key] for run in same], key) for key in ("test_accuracy", "median_certified"))
            if same:
                rows.append(["" if k else graph, name, *cells])
    return table(["graph", "method", "test accuracy", "median certified"], rows)


def times(found: Mapping[str, Any]) -> str:
    """Return CPU seconds and memory by graph."""

    def cell(value: Any) -> str:
        return "-" if value is None else f"{value:.1f}"

    keys = ("audit_seconds", "certify_seconds", "all_budgets_seconds", "certified_audit_seconds")
    rows = []
    for graph, row in found["graphs"].items():
        sizes, command = row["sizes"], row["command"]
        about = f"{graph} ({sizes['nodes']:,} nodes)"
        rows.append([about, cell(command["seconds"]), *(cell(row.get(key)) for key in keys)])
        rows[-1].append(f"{command['peak_mib']:.0f}")
    head = [
        "CPU seconds",
        "`bvat audit`",
        "`audit`",
        "`certify`",
        "all budgets",
        "`audit(certify=True)`",
        "MiB",
    ]
    return table(head, rows)


def with_tables(text: str) -> str:
    """Return the page with its current tables."""
    for make in (ratios, budgets, curves, exact, penalty, times):
        found = json.loads((RESULTS / f"{make.__name__}.json").read_text("utf-8"))
        text = replace_between(text, make.__name__, make(found))
    return text


if __name__ == "__main__":
    page = HERE / "certified.md"
    page.write_text(with_tables(page.read_text("utf-8")), "utf-8")
