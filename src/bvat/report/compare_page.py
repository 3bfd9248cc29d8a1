"""The page of ``bvat compare``, and its figures and tables as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from bvat.data.files import write_atomic
from bvat.report.charts import SERIES, Chart, Line, bar_chart, line_chart, pdf, standalone
from bvat.report.compare_tables import (
    Result,
    View,
    base_name,
    compare_csv,
    compare_markdown,
    latex_tables,
    markdown_tables,
    notes_of,
    p_value,
    rank_line,
    split_counts,
    unit,
    views,
)
from bvat.report.pages import Cell, render, signed
from bvat.report.svg import LIGHT, plain
from bvat.training.metrics import ACCURACY
from bvat.training.statistics import clear_sign
from bvat.tuning.significance import alike


def write_compare_files(result: Result, folder: Path) -> Path:
    """Write the page, tables and figures of a comparison; return the path of the page."""
    gains = f"Gain over {base_name(result, 'a')}, paired over {unit(result)}s"
    figures = {"gains": (gains, gain_charts(result))}
    if charts := accuracy_charts(result):
        figures[views(result)[0].metric.name] = (_against_labels(result), charts)
    for view in views(result):
        if view.ranks is not None:
            title = "Mean ranks: a bar joins methods that do not differ"
            figures[f"ranks-{view.metric.name}-{view.labels}"] = (title, [rank_chart(result, view)])
    files: dict[str, str | bytes] = {
        "report.html": compare_page(result),
        "compare.md": compare_markdown(result),
        "compare.csv": compare_csv(result),
        "tables.tex": latex_tables(result),
        "tables.md": markdown_tables(result),
    }
    for name, figure in figures.items():
        files |= {f"{name}.svg": standalone(*figure), f"{name}.pdf": pdf(*figure)}
    for name, content in files.items():
        write_atomic(folder / name, content)
    return folder / "report.html"


def compare_page(result: Result) -> str:
    parts = views(result)
    counts = ["nodes", "edges", "features", "classes"]
    counts += ["train", "val", "test"] if result.get("split") == "given" else []
    return render(
        "compare.html",
        title="Methods compared",
        result={"split": "random", "tuned": ()} | result,
        split_counts=split_counts(result),
        notes=notes_of(result),
        parts=[_tables(result, view) for view in parts],
        unit=unit(result),
        against_labels=_against_labels(result),
        ranks=[(rank_chart(result, view), rank_line(result, view)) for view in parts if view.ranks],
        accuracy_charts=accuracy_charts(result),
        gain_charts=gain_charts(result),
        base=base_name(result),
        a_base=base_name(result, "a"),
        counts=counts,
        facts=[[name, *[f"{about[key]:,}" for key in counts]] for name, about in result["graphs"].items()],
    )


def _against_labels(result: Result) -> str:
    title = views(result)[0].metric.title.removesuffix(" (%)")
    return f"{title[0].upper()}{title[1:]} against labels per class"


def _tables(result: Result, view: View) -> dict[str, Any]:
    """Return accuracies with paired differences, then wins, losses, the worst split and time."""
    metric, accuracy, details = view.metric, [], []
    for name, about in result["variants"].items():
        entries, whole, base = view.entries(name), view.overall[name], name == result["base"]
        cells = [_cell(entry, metric.digits, base=base) for entry in entries]
        accuracy.append([about["title"], *cells, "" if base else signed(whole["mean"], metric.digits)])
        if not base:
            seconds = [entry["seconds"] for entry in entries if entry["seconds"] is not None]
            details.append([
                about["title"],
                sum(entry["wins"] for entry in entries),
                sum(entry["losses"] for entry in entries),
                signed(whole["worst_split"], metric.digits),
                f"{whole['better']} / {whole['worse']}",
                f"{sum(seconds) / len(seconds):.1f}" if seconds else "",
            ])  # fmt: skip
    other = f": {metric.title}" + ", lower is better" * metric.lower
    return {
        "id": f"{'labels' if metric.name == ACCURACY else metric.name}-{view.labels}",
        "heading": view.heading + (other if metric.name != ACCURACY else ""),
        "header": ["", *view.graphs, "mean gain"],
        "accuracy": accuracy,
        "details": details,
    }


def _cell(entry: dict[str, Any], digits: int, *, base: bool) -> Cell:
    """Return the mean and what is known of it, one below the other, so that eight graphs fit on a laptop."""
    mean, gain = f"{entry['mean']:.{digits}f}", entry["gain"]
    if base:
        return Cell(mean, [f"± {entry['std']:.{digits}f}"] if entry["n"] > 1 else [], "n")
    known = [f"[{signed(gain['low'], digits)}, {signed(gain['high'], digits)}]"] if gain["n"] > 1 else []
    known += [p] if (p := p_value(entry)) else []
    style = f"n {('within', 'above', 'below')[clear_sign(gain)]}"
    return Cell(mean, [signed(gain["mean"], digits), *known], style)


def accuracy_charts(result: Result) -> list[Chart]:
    """Draw accuracy against labels per class, one panel per graph; bands are 95 % intervals."""
    charts, metric = [], views(result)[0].metric
    if result.get("split") == "given":
        return []
    for graph in result["graphs"]:
        rows = [row for row in result["rows"] if row["graph"] == graph]
        lines = [
            _line(name, about, rows, band=name in (result["base"], "auto"))
            for name, about in result["variants"].items()
        ]
        x = [row["labels"] for row in rows]
        options: dict[str, Any] = {"title": graph, "log_x": len(x) > 1, "x_ticks": x}
        charts.append(line_chart(lines, "labels per class", metric.title, **options))
    return charts


def _line(name: str, about: dict[str, Any], rows: list[dict[str, Any]], *, band: bool) -> Line:
    entries = [row["variants"][name] for row in rows]
    half = [(entry["high"] - entry["low"]) / 2 for entry in entries] if band else None
    dashed = "/" in name or name == "auto"
    x, means = [row["labels"] for row in rows], [entry["mean"] for entry in entries]
    return Line(about["title"], x, means, half, about["colour"], dashed, True)


def gain_charts(result: Result) -> list[Chart]:
    """Draw the mean paired gain of every method by graph, one panel per number of labels."""
    names = [name for name in result["variants"] if name != result["base"]]
    looks = {name: (result["variants"][name]["title"], k) for k, name in enumerate(names)}
    against = "a GCN" if result["base"] == "gcn" else base_name(result)
    charts, first = [], views(result)[0].metric
    for view in views(result):
        if view.metric == first:
            groups = {row["graph"]: {n: row["variants"][n]["gain"]["mean"] for n in names}
                      for row in view.rows}  # fmt: skip
            charts.append(
                bar_chart(groups, f"{first.unit} against {against}", title=view.heading, looks=looks,
                          reference=0.0, width=max(440, 110 * len(groups)))
            )  # fmt: skip
    return charts


def rank_chart(result: Result, view: View) -> Chart:
    """Draw mean ranks; a bar joins methods that do not differ (Nemenyi, 5 %)."""
    found: Any = view.ranks
    titles = [about["title"] for about in result["variants"].values()]
    order = sorted(zip(found["ranks"], titles, strict=True), key=lambda pair: pair[0])
    bars = alike(found["ranks"], found["critical_difference"])

    def draw(ax: Axes) -> None:
        ax.plot([rank for rank, _ in order], range(len(order)), "o", color=SERIES[0])
        for number, (low, high) in enumerate(bars):
            y = len(order) - 0.4 + 0.35 * number
            ax.plot([low, high], [y, y], color=LIGHT["ink"], linewidth=3, solid_capstyle="butt")
        ax.set_yticks(range(len(order)), [plain(title) for _, title in order])
        ax.set_ylim(len(order) + 0.35 * len(bars), -0.6)
        ax.set_xlim(0.8, len(order) + 0.2)
        ax.set_xlabel(f"mean rank over {found['graphs']} graphs")
        ax.grid(axis="x")

    label = "mean ranks: " + ", ".join(f"{title} {rank:.2f}" for rank, title in order)
    return Chart(draw, label, f"{view.metric.title}, {view.heading}", height=90 + 26 * len(order))
