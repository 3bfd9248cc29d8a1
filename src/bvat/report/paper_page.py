"""The page of ``bvat reproduce``, made from the JSON files in its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bvat.paper.targets import read_result
from bvat.report.html import (
    Markup,
    claim_list,
    join,
    page,
    provenance,
    section,
    settings_table,
    table,
    tag,
    tiles,
)
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
    judged = [c for result in results.values() for c in result["claims"] if c["holds"] is not None]
    failed = [claim for claim in judged if not claim["holds"]]
    holding = [claim for claim in judged if claim["holds"]]
    numbers: dict[str, Any] = {"statements reproduced": f"{len(holding)} of {len(judged)}"}
    cells = [
        cell
        for row in results.get("table2", {}).get("cells", {}).values()
        for cell in row.values()
        if cell["paper"] is not None
    ]
    if cells:
        reached = sum(cell["last"]["verdict"] != "below" for cell in cells)
        above = sum(cell["last"]["difference"] >= -1e-9 for cell in cells)
        numbers["cells of Table 2 within or above one std of the paper’s mean"] = f"{reached} of {len(cells)}"
        numbers["at or above the paper’s mean"] = f"{above} of {len(cells)}"
    parts: list[Any] = [tiles(numbers)]
    if failed:
        parts += [tag("h3", "What does not reproduce"), claim_list(failed)]
    if holding:
        parts += [tag("h3", "What reproduces"), claim_list(_brief(results))]
    notes = [claim for claim in results.get("table2", {}).get("claims", ()) if claim["holds"] is None]
    if notes:
        parts += [tag("h3", "Other findings"), claim_list(notes)]
    return section("Summary", *parts, name="summary")


def _brief(results: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what holds: Table 2 in full, each figure in one line (its own section has the details)."""
    brief = []
    for name, result in results.items():
        held = [claim for claim in result["claims"] if claim["holds"]]
        judged = [claim for claim in result["claims"] if claim["holds"] is not None]
        if name == "table2":
            brief += held
        elif held:
            text = f"{result['title']}: {len(held)} of {len(judged)} statements hold."
            brief.append({"holds": True, "text": text})
    return brief


def _table2(result: dict[str, Any]) -> Markup:
    parts: list[Any] = [
        tag(
            "p",
            "Each cell shows the mean ± standard deviation over the seeds, the 95 % confidence interval of "
            "the mean, the paper’s value and the difference. ▲ above, ● within, ▼ below one standard "
            "deviation of the paper’s mean (ours where the paper gives none). Rows without its values "
            "are not in the paper; in GCN + consistency two dropout passes must agree, without any "
            "perturbation. NELL’s validation labels are not the paper’s.",
            cls="soft",
        )
    ]
    datasets = result["datasets"]
    titles = [about["title"] for about in datasets.values()]
    for selection, words in SELECTION_TITLES.items():
        rows = [
            [title, *[_cell(result["cells"][method].get(dataset), selection) for dataset in datasets]]
            for method, title in result["methods"].items()
        ]
        parts += [tag("h3", words), table(["", *titles], rows, cls="results")]
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
    return section(result["title"], *parts, name="table2")


def _cell(cell: dict[str, Any] | None, selection: str) -> Markup:
    if cell is None:
        return tag("td", "–", cls="n")
    ours = cell[selection]
    published = cell["paper"]
    parts: list[Any] = [tag("b", f"{ours['mean']:.1f} ± {ours['std']:.1f}")]
    if ours["n"] > 1:
        parts.append(tag("small", f"[{ours['low']:.1f}, {ours['high']:.1f}]"))
    if published is None:
        return tag("td", *parts, cls="n")
    spread = "" if published["std"] is None else f" ± {published['std']:.1f}"
    parts.append(tag("small", f"paper {published['mean']:.1f}{spread}"))
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
        claim_list(result["claims"]),
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
    return section(result["title"], *parts, claim_list(result["claims"]), name="time")


def _how(results: dict[str, dict[str, Any]]) -> Markup:
    """Return the commands, versions and settings."""
    parts: list[Any] = []
    seen: set[str] = set()
    for result in results.values():
        key = json.dumps([result["command"], result["versions"]])
        if key not in seen:
            seen.add(key)
            parts.append(provenance(result["command"], result["versions"]))
        for row in result.get("rows", {}).values():
            if (key := json.dumps([row["command"], row["versions"]])) not in seen:
                seen.add(key)
                parts.append(provenance(row["command"], row["versions"]))
    for name, result in results.items():
        for dataset, settings in result["settings"].items():
            if name == "table2" or "table2" not in results:
                parts.append(
                    tag("details", tag("summary", f"Settings, {name}: {dataset}"), settings_table(settings))
                )
    seeds = "Seeds are 0, 1, 2, …; the same command gives the same numbers, except for times."
    return section("How to reproduce these numbers", tag("p", seeds), join(parts), name="how")
