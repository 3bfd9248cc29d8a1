"""The page of ``bvat compare``, its figures as files, and a table in Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bvat.data.checksums import read_sealed_json
from bvat.data.files import write_atomic
from bvat.errors import DataError
from bvat.report.charts import Chart, Line, bar_chart, line_chart, standalone
from bvat.report.pages import Cell, render, signed
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
        files["accuracy.svg"] = standalone("Test accuracy against labels per class", accuracy_charts(result))
    for name, content in files.items():
        write_atomic(folder / name, content)
    return folder / COMPARE_PAGE


def _base(result: dict[str, Any], article: str = "the") -> str:
    """Return what all others are compared with, for a sentence."""
    title: str = result["variants"][result["base"]]["title"]
    return f"{article} plain GCN" if result["base"] == "gcn" else title


def _given(result: dict[str, Any]) -> bool:
    """Whether the splits that the graphs have were used."""
    return bool(result.get("split") == "given")


def heading(labels: int | str) -> str:
    """Return the title of the rows with one number of labels, or with the given splits."""
    return "given splits" if labels == "given" else f"{labels} label{'s' * (labels != 1)} per class"


def _by_labels(result: dict[str, Any]) -> list[tuple[int | str, list[dict[str, Any]]]]:
    """Return the rows by number of labels, without numbers that no graph has."""
    groups = [(labels, [r for r in result["rows"] if r["labels"] == labels]) for labels in result["labels"]]
    return [(labels, rows) for labels, rows in groups if rows]


def compare_page(result: dict[str, Any]) -> str:
    given, graphs = _given(result), len(result["graphs"])
    intro = f"{graphs} graph{'s' if graphs > 1 else ''}, {split_counts(result)}"
    if not given:
        held_out = f"{result['val']} validation nodes per split" if result["val"] else "no validation nodes"
        intro += f" each, {held_out}"
    intro += (
        f". All methods see the same {'seeds' if given else 'splits'}; differences to "
        f"{_base(result)} are paired, with 95 % intervals (Student's t). Settings are the defaults for any "
        "graph; nothing was chosen by test labels."
    )
    counts = ["nodes", "edges", "features", "classes", *(("train", "val", "test") if given else ())]
    return render(
        "compare.html",
        title="Methods compared",
        intro=intro,
        result={"split_note": None} | result,
        parts=[_tables(result, labels, rows) for labels, rows in _by_labels(result)],
        unit="seed" if given else "split",
        accuracy_charts=[] if given else accuracy_charts(result),
        gain_charts=gain_charts(result),
        base=_base(result, "a"),
        counts=counts,
        facts=[[name, *[f"{about[key]:,}" for key in counts]] for name, about in result["graphs"].items()],
    )


def split_counts(result: dict[str, Any]) -> str:
    """Return how many splits or seeds the rows have: a number, or from the fewest to the most."""
    counts = sorted({len(row["splits"]) for row in result["rows"]})
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{number} seeds on the split that each graph has" if _given(result) else f"{number} random splits"


def _tables(result: dict[str, Any], labels: int | str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return accuracies with paired differences, then wins, losses, the worst split and time."""
    base, overall = result["base"], result["overall"][str(labels)]
    accuracy, details = [], []
    for name, about in result["variants"].items():
        entries, whole = [row["variants"][name] for row in rows], overall[name]
        cells = [_cell(entry, plain=name == base) for entry in entries]
        accuracy.append([about["title"], *cells, "" if name == base else signed(whole["mean"])])
        if name != base:
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
    return {"labels": labels, "heading": heading(labels), "header": header, "accuracy": accuracy,
            "details": details}  # fmt: skip


def _cell(entry: dict[str, Any], *, plain: bool) -> Cell:
    """Return the mean and what is known of it, one below the other, so that eight graphs fit on a laptop."""
    mean = f"{entry['mean']:.1f}"
    if plain:
        return Cell(mean, [f"± {entry['std']:.1f}"] if entry["n"] > 1 else [], "n")
    gain = entry["gain"]
    interval = [f"[{signed(gain['low'])}, {signed(gain['high'])}]"] if gain["n"] > 1 else []
    return Cell(
        mean, [signed(gain["mean"]), *interval], f"n {('within', 'above', 'below')[clear_sign(gain)]}"
    )


def accuracy_charts(result: dict[str, Any]) -> list[Chart]:
    """Draw accuracy against labels per class, one panel per graph; bands are 95 % intervals."""
    charts = []
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
        options: dict[str, Any] = {"title": graph, "log_x": len(x) > 1, "x_ticks": x}
        charts.append(line_chart(lines, "labels per class", "test accuracy (%)", **options))
    return charts


def gain_charts(result: dict[str, Any]) -> list[Chart]:
    """Draw the mean paired gain of every method by graph, one panel per number of labels."""
    names = [name for name in result["variants"] if name != result["base"]]
    looks = {name: (result["variants"][name]["title"], k) for k, name in enumerate(names)}
    axis = f"points against {'a GCN' if result['base'] == 'gcn' else _base(result)}"
    charts = []
    for labels, rows in _by_labels(result):
        groups = {row["graph"]: {n: row["variants"][n]["gain"]["mean"] for n in names} for row in rows}
        width = max(440, 110 * len(groups))
        charts.append(bar_chart(groups, axis, title=heading(labels), looks=looks, reference=0.0, width=width))
    return charts


def compare_markdown(result: dict[str, Any]) -> str:
    """Return one table per number of labels: accuracy of the GCN, gains of the others with intervals."""
    lines = []
    for labels, rows in _by_labels(result):
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
