"""What ``bvat reproduce`` makes from the JSON files in its folder: the page, figures, Table 2 in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from bvat.data.files import write_atomic
from bvat.paper.targets import read_result
from bvat.perturb.methods import ON_GCN
from bvat.report.charts import Chart, Line, line_chart, standalone
from bvat.report.pages import Cell, markdown_table, render, signed

ORDER = ("table2", "fig1a", "fig1b", "fig1c", "fig3", "fig4")
SELECTION_TITLES = {"last": "Last epoch, as in the paper", "best": "Epoch with the best validation accuracy"}
SIGNS = {"above": "▲", "within": "●", "below": "▼"}
OTHER_COLOUR = 3
"""Of a series that is not a method."""

Result = dict[str, Any]


def write_paper_files(folder: Path) -> Path:
    """Write ``report.html``, ``table2.md`` and one SVG file per figure; return the path of the page.

    Everything is made from the JSON files in the folder, including those of earlier calls.
    """
    found = {name: folder / f"{name}.json" for name in ORDER}
    results = {name: read_result(path) for name, path in found.items() if path.exists()}
    write_atomic(folder / "report.html", paper_page(results))
    for name, result in results.items():
        if name == "table2":
            write_atomic(folder / "table2.md", table2_markdown(result))
        else:
            write_atomic(folder / f"{name}.svg", standalone(result["title"], figure_charts(result)))
    return folder / "report.html"


def paper_page(results: dict[str, Result]) -> str:
    table = results.get("table2")
    with_settings = {"table2": table} if table else results
    return render(
        "paper.html",
        title="Batch virtual adversarial training, reproduced",
        reached=_reached(table) if table else {},
        table2=_table2(table) if table else None,
        figures=[
            {
                "name": name,
                "title": result["title"],
                "seeds": sorted({series["n"] for panel in result["panels"] for series in panel["series"]}),
                "charts": figure_charts(result),
                "tables": figure_tables(result),
            }
            for name, result in results.items()
            if "panels" in result
        ],
        origins=_origins(results),
        settings={
            f"{name}: {dataset}": settings
            for name, result in with_settings.items()
            for dataset, settings in result["settings"].items()
        },
    )


def _reached(result: Result) -> dict[str, str]:
    """Return how many cells of Table 2 are as good as the paper's."""
    cells = [cell["last"] for row in result["cells"].values() for cell in row.values()]
    judged = [cell for cell in cells if "verdict" in cell]
    if not judged:
        return {}
    within = sum(cell["verdict"] != "below" for cell in judged)
    above = sum(cell["difference"] >= -1e-9 for cell in judged)
    return {
        "cells of Table 2 within or above one std of the paper’s mean": f"{within} of {len(judged)}",
        "at or above the paper’s mean": f"{above} of {len(judged)}",
    }


def _table2(result: Result) -> dict[str, Any]:
    datasets = result["datasets"]
    tables = []
    for selection, words in SELECTION_TITLES.items():
        comparable = result["comparable"].get(selection, ())
        heads = [d["title"] + " (as the paper)" * (name in comparable) for name, d in datasets.items()]
        rows = [
            [title, *(_cell(result, method, dataset, selection) for dataset in datasets)]
            for method, title in result["methods"].items()
        ]
        tables.append({"title": words, "header": ["", *heads], "rows": rows})
    counts = ["nodes", "edges", "features", "classes", "train", "val", "test"]
    return {
        "title": result["title"],
        "tables": tables,
        "comparable": bool(result["comparable"]),
        "own_rule": any(
            keeps_best(result, method, name) for method, row in result["cells"].items() for name in row
        ),
        "nell": "nell" in datasets,
        "sources": [
            [result["methods"][method], Cell(about["source"]), Cell(about["protocol"])]
            for method, about in result["about"].items()
            if about
        ],
        "counts": counts,
        "facts": [
            [about["title"], *(f"{about[key]:,}" for key in counts), result["seeds"].get(name, ""),
             Cell(about["validation"])]
            for name, about in datasets.items()
        ],
        "other_seeds": other_seeds(result),
    }  # fmt: skip


def _cell(result: Result, method: str, dataset: str, selection: str) -> Cell:
    cell = result["cells"][method].get(dataset)
    if cell is None:
        return Cell("–", style="n")
    ours, published = cell[selection], cell["paper"]
    lines = [f"[{ours['low']:.1f}, {ours['high']:.1f}]"] if ours["n"] > 1 else []
    if keeps_best(result, method, dataset):
        other = "best" if selection == "last" else "last"
        lines.append(f"‡ {other} epoch {cell[other]['mean']:.1f}")
    if cell.get("unscored_test"):
        lines.append(f"{cell['unscored_test']:.1f} % not linked to a label")
    word = ours.get("verdict", "")
    if published is not None:
        spread = "" if published["std"] is None else f" ± {published['std']:.1f}"
        difference = f"{SIGNS.get(word, '')} {signed(ours['difference'])} {word}".strip()
        lines += [f"paper {published['mean']:.1f}{spread}", difference]
    elif result["about"].get(method):
        lines.append("not in the paper")
    return Cell(_mean(ours), lines, f"n {word}".strip())


def _mean(ours: Result) -> str:
    return f"{ours['mean']:.1f}" + (f" ± {ours['std']:.1f}" if ours["n"] > 1 else "")


def keeps_best(result: Result, method: str, dataset: str) -> bool:
    """Whether the settings of a row keep the best epoch on the validation nodes instead of the last."""
    settings = result["settings"].get(dataset, {}).get(method, {})
    return bool(settings.get("select", "last") != "last")


def other_seeds(result: Result) -> str:
    """Return which rows have a different number of seeds than their data sets."""
    other: dict[str, list[str]] = {}
    for method, row in result["cells"].items():
        counts = {dataset: len(cell["seeds"]) for dataset, cell in row.items() if "seeds" in cell}
        differ = {d: n for d, n in counts.items() if n != result["seeds"].get(d)}
        if differ:
            every = set(counts.values())
            words = str(*every) if len(every) == 1 else ", ".join(f"{d} {n}" for d, n in differ.items())
            other.setdefault(words, []).append(result["methods"][method])
    return "; ".join(f"{', '.join(titles)}: {words}" for words, titles in other.items())


def table2_markdown(result: Result, methods: Sequence[str] | None = None) -> str:
    """Return Table 2, or some of its rows, with the paper's values in parentheses.

    Accuracies are those of the last or of the best epoch, whichever the paper reports on a data set, or of
    the epoch that the settings of a method keep.
    """
    datasets, best = list(result["datasets"]), result["comparable"].get("best", ())
    heads = [f"{name} §" if name in best else name for name in datasets]
    rows = [
        [result["methods"][method], *(_markdown_cell(result, method, d, d in best) for d in datasets)]
        for method in methods or result["methods"]
    ]
    table = "\n".join(markdown_table(["test accuracy (%)", *heads], rows))
    told = ["Mean ± standard deviation, the paper's mean in parentheses."]
    told += [_seed_counts(result)] if methods is None else []
    return f"{table}\n\n{' '.join([*told, *_signs(result, table)])}\n"


def _seed_counts(result: Result) -> str:
    seeds = ", ".join(f"{name} {count}" for name, count in result["seeds"].items())
    others = other_seeds(result)
    return f"Number of seeds: {seeds}" + (f" ({others})." if others else ".")


def _signs(result: Result, table: str) -> list[str]:
    """Return which epoch the columns show, and what the signs in a table mean."""
    best = result["comparable"].get("best", ())
    last = " and ".join(name for name in result["datasets"] if name not in best)
    epochs = [f"the last on {last}"] if last else []
    epochs += ["§ the epoch with the best validation accuracy"] if best else []
    meanings = (
        "† Not in the paper.",
        "‡ The epoch that the method's rule of stopping keeps, in brackets the last one.",
    )
    return [f"Epoch: {'; '.join(epochs)}.", *(text for text in meanings if text[0] in table)]


def _markdown_cell(result: Result, method: str, dataset: str, best: bool) -> str:
    cell = result["cells"][method].get(dataset)
    if cell is None:
        return "–"
    own_rule = keeps_best(result, method, dataset) and not best
    ours, published = cell["best" if own_rule or best else "last"], cell["paper"]
    shown = _mean(ours) + (f"‡ [{cell['last']['mean']:.1f}]" if own_rule else "")
    if published is None:
        return shown + ("†" if result["about"].get(method) else "")
    return f"{shown} ({published['mean']:.1f})"


def figure_charts(result: Result) -> list[Chart]:
    """Draw the panels of a figure of :mod:`bvat.paper.figures`; the paper's series are dashed and hollow."""
    x, charts = result["x"]["values"], []
    for panel in result["panels"]:
        lines = []
        several = sum(bool(series["paper"]) for series in panel["series"]) > 1
        for series in panel["series"]:
            label, published = series["label"], series["paper"]
            colour = ON_GCN[series["name"]].colour if series["name"] in ON_GCN else OTHER_COLOUR
            lines.append(Line(label, x, series["mean"], series["std"], colour, marks=True))
            if published:
                name = f"{label}, paper" if several else "the paper"
                lines.append(Line(name, x[: len(published)], published, None, colour, True, True))
        charts.append(line_chart(lines, result["x"]["label"], result["y"]["label"], title=panel["title"]))
    return charts


def figure_tables(result: Result) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return title, header and rows of each panel of a figure; published numbers are in brackets."""
    tables = []
    for panel in result.get("panels", ()):
        rows = []
        for line in panel["series"]:
            values = zip_longest(line["mean"], line["paper"] or ())
            beside = (f"{m:.3g}" if paper is None else f"{m:.3g} ({paper:.3g})" for m, paper in values)
            rows.append([line["label"], *beside])
        header = [result["x"]["label"], *(f"{x:g}" for x in result["x"]["values"])]
        tables.append((f"{result['title']} ({panel['title']})", header, rows))
    return tables


def _origins(results: dict[str, Result]) -> list[Result]:
    """Return the commands and versions that made the results, and rows of them, each once."""
    found: dict[str, Result] = {}
    for result in results.values():
        for each in (result, *result.get("rows", {}).values()):
            found.setdefault(repr([each["command"], each["versions"]]), each)
    return list(found.values())
