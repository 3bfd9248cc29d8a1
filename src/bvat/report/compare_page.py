"""The page of ``bvat compare``, its figures and tables as files, and what the command prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bvat.data.checksums import read_sealed_json
from bvat.data.files import write_atomic
from bvat.errors import DataError
from bvat.report.charts import Chart, Line, bar_chart, line_chart, pdf, standalone
from bvat.report.compare_tables import (
    by_labels,
    by_metric,
    compare_csv,
    heading,
    latex_tables,
    markdown_tables,
    metric_of,
    rank_charts,
    rank_line,
)
from bvat.report.pages import Cell, markdown_table, render, signed
from bvat.training.metrics import ACCURACY
from bvat.training.statistics import clear_sign

COMPARE_PAGE = "report.html"


def write_compare_files(folder: Path) -> Path:
    """Write the page, tables and figures from ``compare.json``; return the path of the page."""
    path = folder / "compare.json"
    try:
        result = read_sealed_json(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}): run bvat compare again") from None
    title = f"Gain over {_base(result, 'a')}, paired over {_unit(result)}s"
    figures = {"gains": (title, gain_charts(result))}
    if not _given(result):
        figures[metric_of(result).name] = (_against_labels(result), accuracy_charts(result))
    figures |= {name: ("Mean ranks: a bar joins methods that do not differ", [chart])
                for name, chart, _ in rank_charts(result)}  # fmt: skip
    files: dict[str, str | bytes] = {
        COMPARE_PAGE: compare_page(result),
        "compare.md": compare_markdown(result),
        "compare.csv": compare_csv(result),
        "tables.tex": latex_tables(result),
        "tables.md": markdown_tables(result),
    }
    for name, figure in figures.items():
        files |= {f"{name}.svg": standalone(*figure), f"{name}.pdf": pdf(*figure)}
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


def _unit(result: dict[str, Any]) -> str:
    if not _given(result):
        return "random split"
    return "seed" if _one_split(result) else "run"


def _one_split(result: dict[str, Any]) -> bool:
    """Whether no graph has several given splits."""
    return all(about.get("splits", 1) == 1 for about in result["graphs"].values())


def _against_labels(result: dict[str, Any]) -> str:
    title = metric_of(result).title.removesuffix(" (%)")
    return f"{title[0].upper()}{title[1:]} against labels per class"


def _introduction(result: dict[str, Any]) -> str:
    given, graphs = _given(result), len(result["graphs"])
    intro = f"{graphs} graph{'s' if graphs > 1 else ''}, {split_counts(result)}"
    if not given:
        held_out = f"{result['val']} validation nodes per split" if result["val"] else "no validation nodes"
        intro += f" each, {held_out}"
    chosen = "are the defaults for any graph; nothing was chosen by test labels"
    if result.get("tuned"):
        some = ", ".join(f"{method} on {graph}" for graph, method in result["tuned"])
        chosen = f"were tuned for {some}; all others are the defaults for any graph"
    return intro + (
        f". All methods see the same {'seeds' if given and _one_split(result) else 'splits'}; differences to "
        f"{_base(result)} are paired, with 95 % intervals (Student's t). Settings {chosen}."
    )


def compare_page(result: dict[str, Any]) -> str:
    given, views = _given(result), by_metric(result)
    counts = ["nodes", "edges", "features", "classes", *(("train", "val", "test") if given else ())]
    return render(
        "compare.html",
        title="Methods compared",
        intro=_introduction(result),
        result={"split_note": None} | result,
        notes=notes_of(result),
        metrics=[[_tables(view, labels, rows) for labels, rows in by_labels(view)] for view in views],
        unit=_unit(result).removeprefix("random "),
        against_labels=_against_labels(result),
        ranks=rank_charts(result),
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
    if not _given(result):
        return f"{number} random splits"
    one = _one_split(result)
    return f"{number} seeds on the split that each graph has" if one else f"{number} runs on the given splits"


def _tables(result: dict[str, Any], labels: int | str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return accuracies with paired differences, then wins, losses, the worst split and time."""
    base, overall, metric = result["base"], result["overall"][str(labels)], metric_of(result)
    accuracy, details = [], []
    for name, about in result["variants"].items():
        entries, whole = [row["variants"][name] for row in rows], overall[name]
        cells = [_cell(entry, metric.digits, plain=name == base) for entry in entries]
        gain = "" if name == base else signed(whole["mean"], metric.digits)
        accuracy.append([about["title"], *cells, gain])
        if name != base:
            details.append([about["title"], *_details(entries, whole, metric.digits)])
    header = ["", *[row["graph"] for row in rows], "mean gain"]
    title, place = heading(labels), f"labels-{labels}"
    if "metric" in result and result["metric"] != ACCURACY:
        title, place = f"{title}: {metric.title}", f"{metric.name}-{labels}"
        title += ", lower is better" * metric.lower
    return {"id": place, "heading": title, "header": header, "accuracy": accuracy,
            "details": details}  # fmt: skip


def _details(entries: list[dict[str, Any]], whole: dict[str, Any], digits: int) -> list[Any]:
    """Return wins, losses, the worst split, on how many graphs a method is better and worse, and seconds."""
    seconds = [entry["seconds"] for entry in entries if entry["seconds"] is not None]
    return [
        sum(entry["wins"] for entry in entries),
        sum(entry["losses"] for entry in entries),
        signed(whole["worst_split"], digits),
        f"{whole['better']} / {whole['worse']}",
        f"{sum(seconds) / len(seconds):.1f}" if seconds else "",
    ]


def _cell(entry: dict[str, Any], digits: int, *, plain: bool) -> Cell:
    """Return the mean and what is known of it, one below the other, so that eight graphs fit on a laptop."""
    mean = f"{entry['mean']:.{digits}f}"
    if plain:
        return Cell(mean, [f"± {entry['std']:.{digits}f}"] if entry["n"] > 1 else [], "n")
    gain = entry["gain"]
    known = [f"[{signed(gain['low'], digits)}, {signed(gain['high'], digits)}]"] if gain["n"] > 1 else []
    known += [f"p {_p(entry)}"] if "p" in entry else []
    style = f"n {('within', 'above', 'below')[clear_sign(gain)]}"
    return Cell(mean, [signed(gain["mean"], digits), *known], style)


def _p(entry: dict[str, Any]) -> str:
    return "< 0.001" if entry["p_holm"] < 0.001 else f"{entry['p_holm']:.3f}"


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
        charts.append(line_chart(lines, "labels per class", metric_of(result).title, **options))
    return charts


def gain_charts(result: dict[str, Any]) -> list[Chart]:
    """Draw the mean paired gain of every method by graph, one panel per number of labels."""
    names = [name for name in result["variants"] if name != result["base"]]
    looks = {name: (result["variants"][name]["title"], k) for k, name in enumerate(names)}
    axis = f"{metric_of(result).unit} against {'a GCN' if result['base'] == 'gcn' else _base(result)}"
    charts = []
    for labels, rows in by_labels(result):
        groups = {row["graph"]: {n: row["variants"][n]["gain"]["mean"] for n in names} for row in rows}
        width = max(440, 110 * len(groups))
        charts.append(bar_chart(groups, axis, title=heading(labels), looks=looks, reference=0.0, width=width))
    return charts


def compare_markdown(result: dict[str, Any]) -> str:
    """Return one table per number of labels: a metric of the GCN, gains of the others with intervals."""
    lines = []
    for view in by_metric(result):
        metric = metric_of(view)
        for labels, rows in by_labels(view):
            title = heading(labels) + f", {metric.title}" * (len(by_metric(result)) > 1)
            cells = [_markdown_row(view, labels, rows, name) for name in result["variants"]]
            lines += markdown_table([title, *(row["graph"] for row in rows), "mean"], cells)
            lines += ["", *_rank_sentence(view, labels)]
    what = metric_of(result).title if len(by_metric(result)) == 1 else "value"
    what = what.replace("test accuracy", "mean test accuracy")
    said = (
        f"First row: {what.removesuffix(' (%)')} of {_base(result)}{' (%)' * ('(%)' in what)}. Others: mean "
        f"difference to it in points, paired over {split_counts(result)}, ± half the width of its 95 % "
        "interval; bold where the interval excludes zero."
    )
    return "\n".join([*lines, said, *(f"\nNote: {note}." for note in notes_of(result))]) + "\n"


def _markdown_row(
    view: dict[str, Any], labels: int | str, rows: list[dict[str, Any]], name: str
) -> list[str]:
    """Return the title of a method, its gain on each graph and their mean; of the base its values."""
    entries, digits = [row["variants"][name] for row in rows], metric_of(view).digits
    title = view["variants"][name]["title"]
    if name == view["base"]:
        return [title, *(f"{entry['mean']:.{digits}f}" for entry in entries), ""]
    mean = signed(view["overall"][str(labels)][name]["mean"], digits)
    return [title, *(_gain(entry, digits) for entry in entries), mean]


def notes_of(result: dict[str, Any]) -> list[str]:
    """Return what a reader has to know, a sentence each."""
    found = [result["split_note"]] if result.get("split_note") else []
    if result.get("tuned") and not _given(result):
        found.append(
            "validation labels of the search for settings may be test labels on random splits: --splits "
            "given compares on the split that was searched on"
        )
    if any(metric_of(view).lower for view in by_metric(result)):
        found.append(
            "a positive difference is better, also where a lower value is (log-loss in nats); probabilities "
            "are those that bvat predict writes, which auto calibrates on held-out labels"
        )
    if any("p" in entry for row in result["rows"] for entry in row["variants"].values()):
        found.append(
            "p-values are those of a paired permutation test, with Holm's correction for the number of "
            "methods compared on a graph"
        )
    if missing := result.get("missing"):
        some = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        found.append(f"{len(missing)} splits are missing ({some}): run the command again to go on")
    return found


def _rank_sentence(result: dict[str, Any], labels: int | str) -> list[str]:
    found = (result.get("ranks") or {}).get(str(labels))
    if found is None:
        return []
    titles = [about["title"] for about in result["variants"].values()]
    return [f"Mean ranks over {found['graphs']} graphs: {rank_line(titles, found)}", ""]


def _gain(entry: dict[str, Any], digits: int) -> str:
    gain = entry["gain"]
    text = signed(gain["mean"], digits)
    if gain["n"] > 1:
        text += f" ± {(gain['high'] - gain['low']) / 2:.{digits}f}"
    text = f"**{text}**" if clear_sign(gain) else text
    return text + (f" (p {_p(entry)})" if "p" in entry else "")
