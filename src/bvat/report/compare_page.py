"""The page of ``bvat compare``, its figures as files, and a table in Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bvat.data.checksums import read_sealed_json
from bvat.data.files import write_atomic
from bvat.errors import DataError
from bvat.report.charts import Drawing, Line, bar_chart, line_chart, standalone
from bvat.report.html import Markup, page, provenance, section, settings_table, table, tag
from bvat.training.statistics import clear_sign

COMPARE_PAGE = "report.html"


def write_compare_files(folder: Path) -> Path:
    """Write the page, ``compare.md`` and the figures from ``compare.json``; return the path of the page."""
    path = folder / "compare.json"
    try:
        result = read_sealed_json(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}): run bvat compare again") from None
    title = f"Gain over {_base(result, 'a')}, paired over {'seeds' if _given(result) else 'random splits'}"
    files = {
        COMPARE_PAGE: compare_page(result),
        "compare.md": compare_markdown(result),
        "gains.svg": standalone(title, gain_charts(result)),
    }
    if not _given(result):
        drawings = accuracy_charts(result)
        files["accuracy.svg"] = standalone("Test accuracy against labels per class", drawings)
    for name, content in files.items():
        write_atomic(folder / name, content)
    return folder / COMPARE_PAGE


def _base(result: dict[str, Any], article: str = "the") -> str:
    """Return what all others are compared with, for a sentence."""
    title: str = result["variants"][result["base"]]["title"]
    return f"{article} plain GCN" if result["base"] == "gcn" else title


def _given(result: dict[str, Any]) -> bool:
    """Return whether the splits that the graphs have were used."""
    return bool(result.get("split") == "given")


def heading(labels: int | str) -> str:
    """Return the title of the rows with one number of labels, or with the given splits."""
    return "given splits" if labels == "given" else f"{labels} labels per class"


def compare_page(result: dict[str, Any]) -> str:
    """Return the whole page."""
    graphs = len(result["graphs"])
    intro = f"{graphs} graph{'s' if graphs > 1 else ''}, {split_counts(result)}"
    if not _given(result):
        intro += f" each, {result['val']} validation nodes per split"
    intro += (
        f". All methods see the same {'seeds' if _given(result) else 'splits'}; differences to "
        f"{_base(result)} are paired, with 95 % intervals (Student's t). Settings are the defaults for any "
        "graph; nothing was chosen by test labels."
    )
    note = result.get("split_note")
    parts: list[Any] = [tag("p", intro), *([tag("p", f"Note: {note}.")] if note else [])]
    for labels in result["labels"]:
        rows = [row for row in result["rows"] if row["labels"] == labels]
        if rows:
            parts.append(_tables(result, labels, rows))
    if not _given(result):
        charts = [drawing.figure() for drawing in accuracy_charts(result)]
        parts.append(section("Accuracy against labels per class", tag("div", *charts, cls="charts")))
    charts = [drawing.figure() for drawing in gain_charts(result)]
    parts.append(section(f"Gain over {_base(result, 'a')}", tag("div", *charts, cls="charts")))
    counts = ("nodes", "edges", "features", "classes", *(("train", "val", "test") if _given(result) else ()))
    facts = [[name, *[f"{about[key]:,}" for key in counts]] for name, about in result["graphs"].items()]
    parts.append(section("Graphs", table(["graph", *counts], facts)))
    how = tag("details", tag("summary", "Settings"), settings_table(result["settings"]))
    parts.append(
        section(
            "How to get these numbers",
            provenance(result["command"], result["versions"], result.get("sources", ())),
            how,
        )
    )
    return page("Methods compared", *parts)


def split_counts(result: dict[str, Any]) -> str:
    """Return how many splits or seeds the rows have: a number, or from the fewest to the most."""
    counts = sorted({len(row["splits"]) for row in result["rows"]})
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{number} seeds on the split that each graph has" if _given(result) else f"{number} random splits"


def _tables(result: dict[str, Any], labels: int, rows: list[dict[str, Any]]) -> Markup:
    """Return accuracies with paired differences, then wins, losses, the worst split and time."""
    base, overall = result["base"], result["overall"][str(labels)]
    accuracy, details = [], []
    for name, about in result["variants"].items():
        cells: list[Any] = [_cell(row["variants"][name], plain=name == base) for row in rows]
        whole = overall[name]
        mean = tag("td", "" if name == base else f"{signed(whole['mean'])}", cls="n")
        accuracy.append([about["title"], *cells, mean])
        if name != base:
            entries = [row["variants"][name] for row in rows]
            seconds = [entry["seconds"] for entry in entries if entry["seconds"] is not None]
            details.append(
                [
                    about["title"],
                    sum(entry["wins"] for entry in entries),
                    sum(entry["losses"] for entry in entries),
                    signed(whole["worst_split"]),
                    f"{whole['better']} / {whole['worse']}",
                    f"{sum(seconds) / len(seconds):.1f}" if seconds else "",
                ]
            )
    header = ["", *[row["graph"] for row in rows], "mean gain"]
    unit = "seed" if _given(result) else "split"
    heads = [
        "",
        f"{unit}s won",
        f"{unit}s lost",
        f"worst {unit}",
        "graphs clearly better / worse",
        "seconds per run",
    ]
    return section(
        heading(labels),
        table(header, accuracy, cls="results tight"),
        tag("h3", f"{unit}s".capitalize()),
        table(heads, details),
        name=f"labels-{labels}",
    )


def _cell(entry: dict[str, Any], *, plain: bool) -> Markup:
    parts: list[Any] = [tag("b", f"{entry['mean']:.1f}")]
    if plain:
        spread = [tag("small", f"± {entry['std']:.1f}")] if entry["n"] > 1 else []
        return tag("td", *parts, *spread, cls="n")
    gain = entry["gain"]
    word = ("within", "above", "below")[clear_sign(gain)]
    # one below the other, so that eight graphs fit on a laptop
    parts.append(tag("small", signed(gain["mean"])))
    if gain["n"] > 1:
        parts.append(tag("small", f"[{signed(gain['low'])}, {signed(gain['high'])}]"))
    return tag("td", *parts, cls=f"n {word}")


def signed(value: float) -> str:
    """Return a difference with its sign, one decimal."""
    shown = f"{value:+.1f}"
    return shown.replace("-", "−") if float(shown) else "0.0"


def accuracy_charts(result: dict[str, Any]) -> list[Drawing]:
    """Draw accuracy against labels per class, one panel per graph; bands are 95 % intervals."""
    drawings = []
    for graph in result["graphs"]:
        rows = [row for row in result["rows"] if row["graph"] == graph]
        x = [row["labels"] for row in rows]
        lines = []
        for name, about in result["variants"].items():
            entries = [row["variants"][name] for row in rows]
            half = [(entry["high"] - entry["low"]) / 2 for entry in entries]
            means = [entry["mean"] for entry in entries]
            shown = half if name in (result["base"], "auto") else None
            dashed = "/" in name or name == "auto"
            lines.append(Line(about["title"], x, means, shown, about["colour"], dashed, True))
        drawings.append(
            line_chart(
                lines, "labels per class", "test accuracy (%)", title=graph, log_x=len(x) > 1, x_ticks=x
            )
        )
    return drawings


def gain_charts(result: dict[str, Any]) -> list[Drawing]:
    """Draw the mean paired gain of every method by graph, one panel per number of labels."""
    names = [name for name in result["variants"] if name != result["base"]]
    looks = {name: (result["variants"][name]["title"], k) for k, name in enumerate(names)}
    axis = f"points against {'a GCN' if result['base'] == 'gcn' else _base(result)}"
    drawings = []
    for labels in result["labels"]:
        rows = [row for row in result["rows"] if row["labels"] == labels]
        groups = {row["graph"]: {n: row["variants"][n]["gain"]["mean"] for n in names} for row in rows}
        if groups:
            title = heading(labels)
            width = max(440, 110 * len(groups))
            drawings.append(bar_chart(groups, axis, title=title, looks=looks, reference=0.0, width=width))
    return drawings


def compare_markdown(result: dict[str, Any]) -> str:
    """Return one table per number of labels: accuracy of the GCN, gains of the others with intervals."""
    lines = []
    for labels in result["labels"]:
        rows = [row for row in result["rows"] if row["labels"] == labels]
        if not rows:
            continue
        head = " | ".join(row["graph"] for row in rows)
        lines += [f"| {heading(labels)} | {head} | mean |", "|---|" + "---:|" * (len(rows) + 1)]
        for name, about in result["variants"].items():
            entries = [row["variants"][name] for row in rows]
            if name == result["base"]:
                cells, last = [f"{entry['mean']:.1f}" for entry in entries], ""
            else:
                cells = [_gain(entry["gain"]) for entry in entries]
                last = signed(result["overall"][str(labels)][name]["mean"])
            lines.append(f"| {about['title']} | {' | '.join(cells)} | {last} |")
        lines.append("")
    said = (
        f"First row: mean test accuracy of {_base(result)} (%). Others: mean difference to it in points, "
        f"paired over {split_counts(result)}, ± half the width of its 95 % interval; bold "
        "where the interval excludes zero."
    )
    note = result.get("split_note")
    return "\n".join([*lines, said, *(["", f"Note: {note}."] if note else [])]) + "\n"


def _gain(gain: dict[str, float]) -> str:
    text = signed(gain["mean"])
    if gain["n"] > 1:
        text += f" ± {(gain['high'] - gain['low']) / 2:.1f}"
    return f"**{text}**" if clear_sign(gain) else text
