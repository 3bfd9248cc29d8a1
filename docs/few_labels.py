"""Write the measured tables of docs/few-labels.md, from results/few-labels.

python benchmarks/few_labels.py --report && python docs/few_labels.py
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bvat.models.ensemble import LINEAR
from bvat.report.pages import replace_between
from bvat.tuning.auto import member_title
from bvat.tuning.variants import Variant

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "few-labels"
TABLE_TITLES = {
    "auto": "`auto`",
    "features": "`LogisticRegression`",
    "spreading": "`LabelSpreading`",
    "self-training": "`SelfTrainingClassifier`",
}
CANDIDATE_TITLES = {
    "second-gcn": "a second GCN, to compare with",
    "residual-gcn": "GCN with normalisation and residuals",
    "gcnii": "GCNII, 8 layers",
    "gpr-gnn": "GPR-GNN",
    "sharpening": "GCN + transductive sharpening",
    "all": "all of them but the second GCN",
}
MEMBER_TITLES = {"none": "no network", "effort 3": "all of effort 3", "effort 4": "all of effort 4"}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown whose first column is text."""
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def recipes(summary: Mapping[str, Any]) -> str:
    """Return the mean accuracy over graphs of everything that was compared."""
    results = summary["labels"]
    titles = {"auto": "**`auto`**", "gcn": "plain GCN", **summary["settings"]["recipes"]}
    return table(
        ["mean accuracy in %, labels per class", *results],
        ([title, *(f"{r['mean'][name]:.1f}" for r in results.values())] for name, title in titles.items()),
    )


def gains(summary: Mapping[str, Any]) -> str:
    """Return the gains with their intervals, and the graphs where ``auto`` does worst."""
    results, aims = summary["labels"], summary["targets"]
    recipe = summary["settings"]["recipes"][summary["best_recipe"]]
    titles = {
        "over_gcn": "mean gain over the GCN",
        "over_recipe": f"mean gain over the best recipe ({recipe})",
        "worst_against_gcn": "worst graph, against the GCN",
        "worst_against_member": "worst graph, against its best member",
    }

    def cell(found: Mapping[str, Any], aim: Mapping[str, Any]) -> str:
        if "mean" in found:
            words = f"{found['mean']:+.1f} ({found['low']:+.1f} to {found['high']:+.1f})"
        else:
            words = f"{found['points']:+.1f} ({found['graph']})"
        return f"{words}, aim {aim['target']:+g}{'' if aim['met'] else ': missed'}"

    rows = (
        [title, *(cell(results[count][name], aims[name][count]) for count in results)]
        for name, title in titles.items()
    )
    return table(["points, labels per class", *results], rows)


def graphs(summary: Mapping[str, Any]) -> str:
    """Return the accuracies by graph: ``auto``, the GCN and the best recipe."""
    results, recipe = summary["labels"], summary["best_recipe"]

    def cell(row: Mapping[str, float]) -> str:
        return f"**{row['auto']:.1f}** / {row['gcn']:.1f} / {row[recipe]:.1f}"

    order = sorted(summary["costs"], key=lambda name: -summary["costs"][name]["edges_agree"])
    rows = (
        [f"{name} ({summary['costs'][name]['classes']})", f"{summary['costs'][name]['edges_agree']:.2f}"]
        + [cell(result["by_graph"][name]) for result in results.values()]
        for name in order
    )
    return table(["graph (classes)", "trust in edges", *results], rows)


def weights(summary: Mapping[str, Any]) -> str:
    """Return the mean weight of every member in percent."""
    results = summary["labels"]
    names = dict.fromkeys(name for r in results.values() for name in r["weights"] if name != "networks")

    def title(name: str) -> str:
        return member_title(name) if name in LINEAR else f"network: {Variant(*name.split('+')).title}"

    rows = (
        [title(name), *(f"{100 * r['weights'].get(name, 0):.0f} %" for r in results.values())]
        for name in names
    )
    return table(["member, labels per class", *results], rows)


def costs(summary: Mapping[str, Any]) -> str:
    """Return processor seconds by graph, small ones first; the largest in brackets."""
    rows = (
        [name, f"{row['nodes']:,}", f"{row['edges']:,}", f"{row['gcn_cpu_seconds']:.1f}"]
        + [f"{row[part]['mean']:.1f} ({row[part]['largest']:.1f})" for part in ("first_answer", "all")]
        for name, row in sorted(summary["costs"].items(), key=lambda item: item[1]["nodes"])
    )
    head = ["processor seconds", "nodes", "edges", "GCN", "`auto`, first answer", "`auto`, all"]
    return table(head, rows)


def protocol(summary: Mapping[str, Any]) -> str:
    """Return what was measured, and how often the estimate was right."""
    draws, held = summary["draws"], summary["estimates"]
    text = (
        f"Measured: {len(draws)} draw{'s' if len(draws) > 1 else ''} ({', '.join(map(str, draws))}) of "
        f"{len(summary['costs'])} graphs, effort {summary['settings']['auto']['effort'][0]}. "
    )
    if held["runs"]:
        share = 100 * held["held"] / held["runs"]
        text += (
            f"In {held['held']} of {held['runs']} runs with an estimate ({share:.0f} %), its 95 % interval "
            "holds the accuracy on the test nodes; "
            + ", ".join(
                f"{r['estimates']['held']} of {r['estimates']['runs']} with {count} labels per class"
                for count, r in summary["labels"].items()
                if r["estimates"]["runs"]
            )
            + "."
        )
    return text


def edgeless(found: Mapping[str, Any]) -> str:
    """Return the accuracies on tables without edges."""
    counts = list(next(iter(found["mean"].values())))
    rows = []
    for name, by_count in found["mean"].items():
        for k, (key, title) in enumerate(TABLE_TITLES.items()):
            row = found["tables"][name]
            about = f"{name} ({row['nodes']:,} rows, {row['classes']} classes)"
            rows.append(["" if k else about, title, *(f"{by_count[n][key]:.1f}" for n in counts)])
    return table(["table", "classifier", *counts], rows)


def members(found: Mapping[str, Any]) -> str:
    """Return what networks add to effort 2: points with their interval, weight, and processor seconds."""
    results = {count: row for count, row in found["labels"].items() if count != "all"}
    rows = []
    for title in (name for name in next(iter(results.values())) if name != "effort 2"):
        row = [MEMBER_TITLES.get(title) or f"with {Variant.parse(title).title}"]
        for result in results.values():
            gain, added = result[title]["gain"], result[title]["weights"]
            share = sum(weight for name, weight in added.items() if name != "gcn+none")
            span = f" ({gain['low']:+.1f} to {gain['high']:+.1f})" if gain["n"] > 1 else ""
            row += [
                f"{gain['mean']:+.1f}{span}",
                f"{100 * share:.0f} %",
                f"{result[title]['training_cpu_seconds']:.0f}",
            ]
        rows.append(row)
    words = ("points", "weight", "seconds")
    head = ["against effort 2", *(f"{n} labels: {word}" for n in results for word in words)]
    runs = [f"{run['graph']}, {run['labels']} labels, draw {run['draw']}" for run in found["runs"]]
    return f"{table(head, rows)}\n\nMeasured: {'; '.join(runs)}."


def candidates(found: Mapping[str, Any]) -> str:
    """Return what each candidate adds to effort 2: points by labels and for all runs, weight and seconds."""
    results = found["labels"]
    counts = [name for name in results if name != "all"]
    rows = []
    for name, title in CANDIDATE_TITLES.items():
        every = results["all"][name]
        gain = every["gain"]
        share = sum(weight for member, weight in every["weights"].items() if member != "gcn+none")
        row = [title, *(f"{results[count][name]['gain']['mean']:+.2f}" for count in counts)]
        row += [f"{gain['mean']:+.2f} ({gain['low']:+.2f} to {gain['high']:+.2f})", f"{100 * share:.0f} %"]
        rows.append([*row, f"{every['training_cpu_seconds']:.0f}"])
    head = ["points against effort 2", *(f"{n} labels" for n in counts), "all runs", "weight", "seconds"]
    draws: dict[str, list[str]] = {}
    for name, draw in sorted({(run["graph"], run["draw"]) for run in found["runs"]}):
        draws.setdefault(name, []).append(str(draw))
    runs = "; ".join(f"{name}, draw {' and '.join(numbers)}" for name, numbers in draws.items())
    return f"{table(head, rows)}\n\nMeasured: {runs}; {len(found['runs'])} runs."


def alone(*found: Mapping[str, Any]) -> str:
    """Return accuracies of regularisers and models by themselves, without validation nodes."""
    cells = [row for each in found for row in each["rows"]]
    kinds = {name: v["title"] for each in found for name, v in each["variants"].items()}

    def cell(row: Mapping[str, Any], name: str) -> str:
        return f"{row['variants'][name]['mean']:.1f}" if name in row["variants"] else "-"

    rows = ([title, *(cell(row, name) for row in cells)] for name, title in kinds.items())
    heads = (f"{row['graph']}, {row['labels']} label{'s' if row['labels'] > 1 else ''}" for row in cells)
    return table(["accuracy in %", *heads], rows)


def memory(found: Mapping[str, Any]) -> str:
    """Return the peak memory of ``auto`` and of a GCN, and what neighbours of many nodes take."""

    def pair(row: Mapping[str, Any], kind: str) -> str:
        auto, gcn = row[f"auto_{kind}"], row[f"gcn_{kind}"]
        return f"{auto:.0f} / {gcn:.0f} = {auto / gcn:.2f}"

    rows = ([name, pair(row, "process_mb"), pair(row, "mb")] for name, row in found["graphs"].items())
    many = found["neighbours"]
    return (
        f"{table(['peak MiB, `auto` / GCN', 'process', 'without imports'], rows)}\n\n"
        f"Neighbours of {many['nodes']:,} nodes with {many['columns']} dense columns (k = {many['k']}) "
        f"take, on one thread, "
        f"{many['cpu_seconds']:.0f} processor seconds and {many['peak_mb'] / 1024:.1f} GiB; "
        f"{100 * many['recall']:.0f} % of the true neighbours are found."
    )


def with_tables(text: str) -> str:
    """Return the page with its current tables."""

    def read(name: str) -> Any:
        return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))

    summary, tables, networks = (read(name) for name in ("summary", "tables", "members"))
    text = replace_between(text, "candidates", candidates(read("candidates")))
    text = replace_between(text, "alone", alone(read("regularisers"), read("dense")))
    text = replace_between(text, "memory", memory(read("memory")))
    for make in (recipes, gains, graphs, weights, costs, protocol):
        text = replace_between(text, make.__name__, make(summary))
    text = replace_between(text, "members", members(networks))
    return replace_between(text, "tables", edgeless(tables))


if __name__ == "__main__":
    page = HERE / "few-labels.md"
    page.write_text(with_tables(page.read_text("utf-8")), "utf-8")
