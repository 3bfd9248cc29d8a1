"""The page of ``bvat reproduce``, made from the JSON files in its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bvat.paper.published import table2
from bvat.paper.targets import read_result
from bvat.report.html import (
    Markup,
    join,
    page,
    provenance,
    section,
    settings_table,
    table,
    tag,
    tiles,
)
from bvat.report.markdown import keeps_best, other_seeds
from bvat.report.paper_charts import figure_panels

ORDER = ("table2", "fig1a", "fig1b", "fig1c", "fig3", "fig4", "time")
SELECTION_TITLES = {"last": "Last epoch, as in the paper", "best": "Epoch with the best validation accuracy"}
SIGNS = {"above": "▲", "within": "●", "below": "▼"}


def read_paper_results(folder: Path) -> dict[str, dict[str, Any]]:
    """Read the results in a folder, in the order of the paper."""
    found = {}
    for name in ORDER:
        path = folder / f"{name}.json"
        if not path.exists():
            continue
        found[name] = read_result(path)
    return found


def paper_page(results: dict[str, dict[str, Any]]) -> str:
    """Return the page that shows all results, with a summary at the top."""
    parts = [
        tag(
            "p",
            "Tables and figures of “Batch Virtual Adversarial Training for Graph Convolutional Networks” "
            "(Deng, Dong, Zhu, 2019), reproduced and compared with the published numbers.",
            cls="soft",
        ),
        _summary(results),
    ]
    for name, result in results.items():
        if name == "table2":
            parts.append(_table2(result))
        elif name == "time":
            parts.append(_time(result))
        else:
            parts.append(_figure(result))
    return page("Batch virtual adversarial training, reproduced", *parts, _how(results))


def _summary(results: dict[str, dict[str, Any]]) -> Markup:
    cells = [
        cell
        for row in results.get("table2", {}).get("cells", {}).values()
        for cell in row.values()
        if "verdict" in cell["last"]
    ]
    if not cells:
        return Markup("")
    reached = sum(cell["last"]["verdict"] != "below" for cell in cells)
    above = sum(cell["last"]["difference"] >= -1e-9 for cell in cells)
    numbers = {
        "cells of Table 2 within or above one std of the paper’s mean": f"{reached} of {len(cells)}",
        "at or above the paper’s mean": f"{above} of {len(cells)}",
    }
    return section("Summary", tiles(numbers), name="summary")


def _table2(result: dict[str, Any]) -> Markup:
    parts: list[Any] = [
        tag(
            "p",
            "Each cell shows the mean ± standard deviation over the seeds, the 95 % confidence interval of "
            "the mean, the paper’s value and the difference. ▲ above, ● within, ▼ below one standard "
            "deviation of the paper’s mean (of a GCN, ours); where others gave a mean without spread, only "
            "the difference is shown. Rows without its values "
            "are not in the paper; in GCN + consistency two dropout passes must agree, without any "
            "perturbation.",
            cls="soft",
        )
    ]
    datasets = result["datasets"]
    titles = [about["title"] for about in datasets.values()]
    known = [method for method, about in result.get("about", {}).items() if about]
    for selection, words in SELECTION_TITLES.items():
        rows = [
            [
                title,
                *[
                    _cell(cell, selection, method in known, both=keeps_best(result, method, d))
                    for d in datasets
                    for cell in [result["cells"][method].get(d)]
                ],
            ]
            for method, title in result["methods"].items()
        ]
        comparable = result.get("comparable", {}).get(selection, ())
        heads = [
            f"{title} (as the paper)" if d in comparable else title
            for d, title in zip(datasets, titles, strict=True)
        ]
        parts += [tag("h3", words), table(["", *heads], rows, cls="results")]
    parts += [_notes(result), _sources(result)]
    counts = ("nodes", "edges", "features", "classes", "train", "val", "test")
    facts = [
        [
            about["title"],
            *[f"{about[key]:,}" for key in counts],
            result["seeds"].get(name, ""),
            tag("td", about["validation"]),
        ]
        for name, about in datasets.items()
    ]
    header = ["data set", *counts, "seeds", "validation labels"]
    parts += [tag("h3", "Data sets"), table(header, facts)]
    others = other_seeds(result)
    if others:
        parts.append(tag("p", f"Rows with another number of seeds: {others}."))
    return section(result["title"], *parts, name="table2")


COMPARABLE = (
    "Columns marked “as the paper” choose the epoch as it does. A comment in its source says of Pubmed "
    "and NELL: “we report the test accuracy of the model at the epoch when the model achieve highest "
    "validation accuracy”. That sentence decides, not the result. Baselines have no epochs: both tables show "
    "the same."
)
OWN_RULE = (
    "‡ The settings of this row keep the epoch that its rule of stopping chooses on the validation nodes: "
    "table2.md shows the number in the second table, with that of the last epoch in brackets where the paper "
    "reports the last one."
)
NELL = (
    "NELL: the validation labels are not the paper’s, see the table of data sets, and 105 of the 210 label "
    "columns of Yang et al. are used. The NELL files that the authors released differ from those of Yang et "
    "al.: the rows of training and test nodes are all zero, and the validation nodes are the test nodes."
)


def _notes(result: dict[str, Any]) -> Markup:
    """Return what a reader must know to compare the columns."""
    notes = [COMPARABLE] if result.get("comparable") else []
    if any(keeps_best(result, method, d) for method, row in result["cells"].items() for d in row):
        notes.append(OWN_RULE)
    if "nell" in result["datasets"]:
        notes.append(NELL)
    if (cell := result["cells"].get("lp", {}).get("nell")) is not None:
        notes.append(
            f"On NELL, label propagation reaches {cell['last']['mean']:.1f} without any features (published "
            f"{cell['paper']['mean']:.1f}; the published GCN {table2('gcn', 'nell').mean:.1f})."  # type: ignore[union-attr]
        )
    return join([tag("p", text, cls="soft") for text in notes])


def _sources(result: dict[str, Any]) -> Markup:
    """Return where the published numbers come from, and how they were measured."""
    rows = [
        [result["methods"][method], tag("td", about["source"]), tag("td", about["protocol"])]
        for method, about in result.get("about", {}).items()
        if about
    ]
    header = ["row", "published by", "protocol"]
    return join([tag("h3", "Where the published numbers come from"), table(header, rows)] if rows else [])


def _cell(cell: dict[str, Any] | None, selection: str, in_paper: bool, *, both: bool) -> Markup:
    if cell is None:
        return tag("td", "–", cls="n")
    ours = cell[selection]
    published = cell["paper"]
    parts: list[Any] = [tag("b", f"{ours['mean']:.1f}" + (f" ± {ours['std']:.1f}" if ours["n"] > 1 else ""))]
    if ours["n"] > 1:
        parts.append(tag("small", f"[{ours['low']:.1f}, {ours['high']:.1f}]"))
    if both:
        other = "best" if selection == "last" else "last"
        parts.append(tag("small", f"‡ {other} epoch {cell[other]['mean']:.1f}"))
    if cell.get("unscored_test"):
        parts.append(tag("small", f"{cell['unscored_test']:.1f} % not linked to a label"))
    if published is None:
        parts += [tag("small", "not in the paper")] if in_paper else []
        return tag("td", *parts, cls="n")
    spread = "" if published["std"] is None else f" ± {published['std']:.1f}"
    parts.append(tag("small", f"paper {published['mean']:.1f}{spread}"))
    if "verdict" not in ours:
        parts.append(tag("small", signed(ours["difference"])))
        return tag("td", *parts, cls="n")
    sign, word = SIGNS[ours["verdict"]], ours["verdict"]
    parts.append(tag("small", f"{sign} {signed(ours['difference'])} {word}"))
    return tag("td", *parts, cls=f"n {word}")


def signed(value: float, digits: int = 1) -> str:
    """Format a difference with its sign."""
    shown = f"{value:+.{digits}f}"
    return shown.replace("-", "−") if float(shown) else f"{0:.{digits}f}"


def _figure(result: dict[str, Any]) -> Markup:
    seeds = sorted({series["n"] for panel in result["panels"] for series in panel["series"]})
    said = f"Solid with band: mean ± standard deviation over {' or '.join(map(str, seeds))} seeds. "
    said += "Dashed and hollow: the paper."
    return section(
        result["title"],
        tag("p", said, cls="soft"),
        tag("div", *[panel.figure() for panel in figure_panels(result)], cls="charts"),
        name=result["target"],
    )


def _time(result: dict[str, Any]) -> Markup:
    parts: list[Any] = []
    for dataset, rows in result["times"].items():
        cells = [
            [
                row["title"],
                f"{row['ms']:.2f}",
                "" if row["ratio"] is None else f"{row['ratio']:.2f} ×",
                "" if row["paper_ms"] is None else f"{row['paper_ms']:.1f}",
                "" if row["paper_ratio"] is None else f"{row['paper_ratio']:.2f} ×",
            ]
            for row in rows.values()
        ]
        parts.append(table([dataset, "ms", "vs. GCN", "paper: ms (GPU)", "paper: vs. GCN"], cells))
    return section(result["title"], *parts, name="time")


def _how(results: dict[str, dict[str, Any]]) -> Markup:
    """Return the commands, versions and settings."""
    parts: list[Any] = []
    seen: set[str] = set()
    for result in results.values():
        key = json.dumps([result["command"], result["versions"]])
        if key not in seen:
            seen.add(key)
            parts.append(provenance(result["command"], result["versions"], result.get("sources", ())))
        for row in result.get("rows", {}).values():
            if (key := json.dumps([row["command"], row["versions"]])) not in seen:
                seen.add(key)
                parts.append(provenance(row["command"], row["versions"], row.get("sources", ())))
    for name, result in results.items():
        for dataset, settings in result["settings"].items():
            if name == "table2" or "table2" not in results:
                parts.append(
                    tag("details", tag("summary", f"Settings, {name}: {dataset}"), settings_table(settings))
                )
    seeds = (
        "Seeds are 0, 1, 2, …; the same command gives the same numbers on the same kind of processor, except "
        "for times. Another kind rounds differently, and a single seed may then change by a point or two."
    )
    return section("How to reproduce these numbers", tag("p", seeds), join(parts), name="how")
