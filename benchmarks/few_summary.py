"""Summary and pictures of benchmarks/few_labels.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from bvat.data.files import write_atomic, write_json
from bvat.errors import SettingsError
from bvat.models.ensemble import LINEAR
from bvat.report.charts import Chart, Line, line_chart, standalone
from bvat.training.provenance import package_versions, versions
from bvat.training.settings import Settings
from bvat.training.statistics import sample
from few_recipes import RECIPES

Run = Mapping[str, Any]
TARGETS = {
    "over_gcn": {1: 10, 2: 8, 5: 6, 20: 4},
    "over_recipe": {1: 5, 2: 4, 5: 3, 20: 1},
    "worst_against_gcn": {1: -3, 2: -2, 5: -1, 20: -0.5},
    "worst_against_member": {1: -8, 2: -5, 5: -4, 20: -1.5},
}
"""What was aimed at, in points, by labels per class."""
TITLES = {"auto": "auto", "gcn": "plain GCN", **{name: row[0] for name, row in RECIPES.items()}}
SMALL = 235
"""Width of a chart of one graph; two of them side by side are legible on a phone."""


def complete_runs(runs: Sequence[Run]) -> list[Run]:
    """Return the runs of draws that were measured on all graphs with all numbers of labels."""
    cells = {(run["graph"], run["labels"]) for run in runs}
    found = {run["draw"]: set[Any]() for run in runs}
    for run in runs:
        found[run["draw"]].add((run["graph"], run["labels"]))
    return [run for run in runs if found[run["draw"]] == cells]


def auto_source(run: Run) -> str:
    """Return the source that ``auto`` was measured with: that of the run, unless it was measured again."""
    found: str = run["auto"].get("source", run["source"])
    return found


def accuracy(run: Run, name: str) -> float:
    value: float = (run[name] if name in ("auto", "gcn") else run["recipes"][name])["accuracy"]
    return value


def best_recipe(runs: Sequence[Run]) -> str:
    """Return the recipe with the largest mean over all graphs, draws and numbers of labels."""
    return max(RECIPES, key=lambda name: fmean(accuracy(run, name) for run in runs))


def by_graph(runs: Sequence[Run], value: Callable[[Run], float]) -> dict[str, float]:
    """Return the mean of a value over the draws of each graph."""
    graphs = dict.fromkeys(run["graph"] for run in runs)
    return {graph: fmean(value(run) for run in runs if run["graph"] == graph) for graph in graphs}


def best_member(runs: Sequence[Run]) -> dict[str, float]:
    """Return the largest mean accuracy of one member over the draws of each graph, chosen with hindsight.

    Networks count as the same member, whatever graph they were trained on.
    """
    found = {}
    for graph in dict.fromkeys(run["graph"] for run in runs):
        alone: dict[str, list[float]] = {}
        own = [run for run in runs if run["graph"] == graph]
        for run in own:
            for name, member in run["auto"]["members"].items():
                alone.setdefault(member_kind(name), []).append(member["accuracy"])
        found[graph] = max(fmean(values) for values in alone.values() if len(values) == len(own))
    return found


def member_kind(name: str) -> str:
    """Return the name of a linear member, or model and method of a network."""
    return name if name in LINEAR else name.rpartition("-")[0]


def worst(differences: Mapping[str, float]) -> dict[str, Any]:
    graph = min(differences, key=differences.__getitem__)
    return {"graph": graph, "points": differences[graph]}


def with_labels(runs: Sequence[Run], recipe: str) -> dict[str, Any]:
    """Return the comparison for one number of labels per class."""

    def gain(name: str) -> dict[str, Any]:
        return sample([accuracy(run, "auto") - accuracy(run, name) for run in runs]).as_dict()

    ours, members = by_graph(runs, lambda run: accuracy(run, "auto")), best_member(runs)
    estimated = [run["auto"] for run in runs if run["auto"]["estimate"]]
    held = sum(a["estimate"]["low"] <= a["accuracy"] <= a["estimate"]["high"] for a in estimated)
    return {
        "mean": {name: fmean(accuracy(run, name) for run in runs) for name in TITLES},
        "by_graph": {
            graph: {
                name: fmean(accuracy(run, name) for run in runs if run["graph"] == graph) for name in TITLES
            }
            | {"best member": members[graph]}
            for graph in ours
        },
        "over_gcn": gain("gcn"),
        "over_recipe": gain(recipe),
        "worst_against_gcn": worst(by_graph(runs, lambda run: accuracy(run, "auto") - accuracy(run, "gcn"))),
        "worst_against_member": worst({graph: ours[graph] - members[graph] for graph in ours}),
        "worst_against_member_of_run": worst(by_graph(runs, _against_member)),
        "estimates": {"runs": len(estimated), "held": held},
        "weights": mean_weights(runs),
    }


def _against_member(run: Run) -> float:
    return accuracy(run, "auto") - max(m["accuracy"] for m in run["auto"]["members"].values())


def mean_weights(runs: Sequence[Run]) -> dict[str, float]:
    """Return the mean weight of every member, and of all networks together."""
    kinds = dict.fromkeys(member_kind(name) for run in runs for name in run["auto"]["members"])
    found = dict.fromkeys(kinds, 0.0)
    for run in runs:
        for name, member in run["auto"]["members"].items():
            found[member_kind(name)] += member["weight"] / len(runs)
    return found | {"networks": sum(weight for kind, weight in found.items() if kind not in LINEAR)}


def targets(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return every target, what was measured, and whether it is met."""
    found: dict[str, Any] = {}
    for name, wanted in TARGETS.items():
        found[name] = {}
        for count, least in wanted.items():
            if str(count) in results:
                result = results[str(count)][name]
                value = result["mean" if name.startswith("over") else "points"]
                found[name][str(count)] = {"target": least, "measured": value, "met": value >= least}
    return found


def costs(runs: Sequence[Run]) -> dict[str, Any]:
    """Return processor seconds by graph, mean and largest, over draws and numbers of labels."""
    found = {}
    for graph in dict.fromkeys(run["graph"] for run in runs):
        own = [run for run in runs if run["graph"] == graph]
        row: dict[str, Any] = {name: own[0][name] for name in ("nodes", "edges", "features", "classes")}
        ours = [run["auto"] for run in own]
        for name, spent in {"all": ours, "first_answer": [each["first_answer"] for each in ours]}.items():
            values = [each["cpu_seconds"] for each in spent]
            row[name] = {"mean": fmean(values), "largest": max(values)}
        row["gcn_cpu_seconds"] = fmean(run["gcn"]["cpu_seconds"] for run in own)
        row["edges_agree"] = fmean(run["auto"]["edges_agree"] for run in own)
        row["reduced"] = [name for name in RECIPES if own[0]["recipes"][name]["reduced"]]
        found[graph] = row
    return found


def summarised(runs: Sequence[Run], settings: Settings) -> dict[str, Any]:
    """Return all numbers of complete draws, with what they were made by."""
    kept = complete_runs(runs)
    if not kept:
        raise SettingsError("no draw is complete over all graphs and numbers of labels: measure on")
    recipe, graphs = best_recipe(kept), list(dict.fromkeys(run["graph"] for run in kept))
    counts, draws = (sorted({run[name] for run in kept}) for name in ("labels", "draw"))
    results = {str(n): with_labels([run for run in kept if run["labels"] == n], recipe) for n in counts}
    estimates = [result["estimates"] for result in results.values()]
    effort = sorted({run["effort"] for run in kept})
    options = {"labels": counts, "draws": draws, "effort": effort}
    words = [f"--{name} {','.join(map(str, values))}" for name, values in options.items()]
    command = f"python benchmarks/few_labels.py {' '.join([*graphs, *words])} --report"
    return {
        "command": command,
        "versions": versions() | {k: v for k, v in package_versions(["scikit-learn"]).items() if "sci" in k},
        "sources": {
            "gcn and recipes": sorted({run["source"] for run in kept}),
            "auto": {
                str(n): sorted({auto_source(run) for run in kept if run["labels"] == n}) for n in counts
            },
        },
        "settings": {"gcn": settings.as_dict(), "auto": {"effort": effort}, "recipes": recipe_titles()},
        "protocol": "labels only: so many labels per class for training, none for validation, the rest test",
        "draws": draws,
        "best_recipe": recipe,
        "labels": results,
        "targets": targets(results),
        "estimates": {key: sum(each[key] for each in estimates) for key in ("runs", "held")},
        "costs": costs(kept),
    }


def recipe_titles() -> dict[str, str]:
    return {name: title for name, (title, _) in RECIPES.items()}


def pictures(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return SVG files by name: the mean over graphs of all recipes, and a chart per graph with the best."""
    results = summary["labels"]
    counts = [int(count) for count in results]
    graphs = next(iter(results.values()))["by_graph"]

    def chart(title: str, names: Sequence[str], rows: Sequence[Mapping[str, float]]) -> Chart:
        order = list(TITLES)
        lines = [
            Line(TITLES[name], counts, [row[name] for row in rows], None, k, name != "auto", True)
            for k, name in ((order.index(name), name) for name in names)
        ]
        words = ("", "") if title else ("labels per class", "test accuracy in %")  # small charts: above all
        return line_chart(lines, *words, title=title, log_x=True, x_ticks=counts)

    mean = chart("", list(TITLES), [result["mean"] for result in results.values()])
    shown = ["auto", "gcn", summary["best_recipe"]]
    each = [
        replace(chart(g, shown, [r["by_graph"][g] for r in results.values()]), width=SMALL) for g in graphs
    ]
    return {
        "few-labels.svg": standalone(f"Accuracy with few labels, mean of {len(graphs)} graphs", [mean]),
        "few-labels-graphs.svg": standalone("Test accuracy in % against labels per class", each),
    }


def write_report(runs: Sequence[Run], out: Path, folder: Path, settings: Settings) -> None:
    summary = summarised(runs, settings)
    write_json(out / "summary.json", summary)
    for name, content in pictures(summary).items():
        write_atomic(folder / name, content)
