"""Tables of a comparison for a paper: mean ± standard deviation in LaTeX and Markdown, all values in CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any

from matplotlib.axes import Axes

from bvat.report.charts import SERIES, Chart
from bvat.report.pages import markdown_table
from bvat.report.svg import LIGHT, plain
from bvat.training.metrics import ACCURACY, METRICS, Metric
from bvat.tuning.significance import LEVEL, alike

Result = dict[str, Any]
_LATEX = str.maketrans({c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
})  # fmt: skip


def by_metric(result: Result) -> list[Result]:
    """Return a comparison once per metric."""
    return [result, *(result | each for each in result.get("more", ()))]


def metric_of(result: Result) -> Metric:
    return METRICS[result.get("metric", ACCURACY)]


def heading(labels: int | str) -> str:
    """Return the title of the rows with one number of labels, or with the given splits."""
    return "given splits" if labels == "given" else f"{labels} label{'s' * (labels != 1)} per class"


def by_labels(result: Result) -> list[tuple[int | str, list[dict[str, Any]]]]:
    """Return the rows by number of labels, without numbers that no graph has."""
    groups = [(labels, [r for r in result["rows"] if r["labels"] == labels]) for labels in result["labels"]]
    return [(labels, rows) for labels, rows in groups if rows]


def compare_csv(result: Result) -> str:
    """Return one row per graph, labels, split and method with the value of every metric."""
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    views = by_metric(result)
    table.writerow(["graph", "labels", "split", "method", *(metric_of(view).name for view in views)])
    for rows in zip(*(view["rows"] for view in views), strict=True):
        first = rows[0]
        for k, split in enumerate(first["splits"]):
            for name in result["variants"]:
                values = [row["variants"][name]["values"][k] for row in rows]
                table.writerow([first["graph"], first["labels"], split, name, *values])
    return file.getvalue()


def latex_tables(result: Result) -> str:
    """Return a booktabs table per metric and number of labels; the best is bold, the second underlined."""
    found = ["% needs \\usepackage{booktabs}"]
    for metric, labels, graphs, rows in _tables(result, _latex_cell):
        found += [
            "\\begin{table}\n\\centering",
            f"\\caption{{{_latex(_caption(result, metric, labels))}}}",
            f"\\begin{{tabular}}{{l{'c' * len(graphs)}}}\n\\toprule",
            " & ".join(["Method", *map(_latex, graphs)]) + r" \\",
            "\\midrule",
            *(" & ".join([_latex(title), *cells]) + r" \\" for title, cells in rows),
            "\\bottomrule\n\\end{tabular}\n\\end{table}\n",
        ]
    return "\n".join(found)


def markdown_tables(result: Result) -> str:
    """Return the same tables in Markdown."""
    found: list[str] = []
    for metric, labels, graphs, rows in _tables(result, _markdown_cell):
        found += markdown_table([heading(labels), *graphs], ([title, *cells] for title, cells in rows))
        found.append(f"\n{_caption(result, metric, labels)}\n")
    return "\n".join(found)


CellText = Callable[[str, str, int, bool], str]
"""Writes a cell from its mean, its deviation, its place among the methods, and whether it is significant."""


def _tables(
    result: Result, write: CellText
) -> Iterator[tuple[Metric, int | str, list[str], list[tuple[str, list[str]]]]]:
    """Yield metric, labels, the names of the graphs, and per method its title and a cell per graph."""
    for view in by_metric(result):
        metric = metric_of(view)
        for labels, rows in by_labels(view):
            columns = [_column(row, metric, write) for row in rows]
            titled = [
                (about["title"], [column[name] for column in columns])
                for name, about in result["variants"].items()
            ]
            yield metric, labels, [row["graph"] for row in rows], titled


def _column(row: dict[str, Any], metric: Metric, write: CellText) -> dict[str, str]:
    """Return the cells of a graph by method. Means that are printed alike share their place."""
    shown = {name: f"{entry['mean']:.{metric.digits}f}" for name, entry in row["variants"].items()}
    places = sorted({float(text) for text in shown.values()}, reverse=not metric.lower)
    found = {}
    for name, entry in row["variants"].items():
        std = f"{entry['std']:.{metric.digits}f}" if entry["n"] > 1 else ""
        place = places.index(float(shown[name])) if len(shown) > 1 else len(shown)
        found[name] = write(shown[name], std, place, entry.get("p_holm", 1.0) < LEVEL)
    return found


def _latex_cell(mean: str, std: str, place: int, significant: bool) -> str:
    text = {0: rf"\textbf{{{mean}}}", 1: rf"\underline{{{mean}}}"}.get(place, mean)
    spread = rf" $\pm$ {std}" if std else ""
    return text + spread + ("$^{*}$" if significant else "")


def _markdown_cell(mean: str, std: str, place: int, significant: bool) -> str:
    text = {0: f"**{mean}**", 1: f"<u>{mean}</u>"}.get(place, mean)
    return text + (f" ± {std}" if std else "") + (r"\*" if significant else "")


def _caption(result: Result, metric: Metric, labels: int | str) -> str:
    counts = sorted({len(row["splits"]) for row in result["rows"] if row["labels"] == labels})
    number = " to ".join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))
    unit = "run" if result.get("split") == "given" else "random split"
    title = metric.title[0].upper() + metric.title[1:]
    spread = "mean" if counts[-1] == 1 else "mean and standard deviation"
    text = f"{title}, {heading(labels)}: {spread} over {number} {unit}{'s' * (counts[-1] > 1)}"
    if metric.lower:
        text += "; lower is better"
    if any("p_holm" in entry for row in result["rows"] for entry in row["variants"].values()):
        base = result["variants"][result["base"]]["title"]
        text += f". * differs from {base} at 5 % (paired permutation test, Holm's correction per graph)"
    return f"{text}."


def _latex(text: str) -> str:
    return text.translate(_LATEX).replace("±", r"$\pm$")


def rank_charts(result: Result) -> list[tuple[str, Chart, str]]:
    """Return name, critical-difference diagram and a line below it per metric and number of labels."""
    found = []
    for view in by_metric(result):
        for labels, ranks in (view.get("ranks") or {}).items():
            if ranks is not None:
                number = labels if labels == "given" else int(labels)
                metric, names = metric_of(view), [about["title"] for about in view["variants"].values()]
                chart = rank_chart(names, ranks, f"{metric.title}, {heading(number)}")
                found.append((f"ranks-{metric.name}-{labels}", chart, rank_line(names, ranks)))
    return found


def rank_line(names: list[str], ranks: dict[str, Any]) -> str:
    order = ", ".join(f"{name} {rank:.2f}" for rank, name in sorted(zip(ranks["ranks"], names, strict=True)))
    return (
        f"{order}. Critical difference {ranks['critical_difference']:.2f} (Nemenyi, 5 %); Friedman's test: "
        f"p = {ranks['friedman_p']:.3f}."
    )


def rank_chart(names: list[str], ranks: dict[str, Any], title: str) -> Chart:
    """Draw mean ranks; a bar joins methods that do not differ (Nemenyi, 5 %)."""
    order = sorted(range(len(names)), key=lambda k: ranks["ranks"][k])
    bars = alike(ranks["ranks"], ranks["critical_difference"])

    def draw(ax: Axes) -> None:
        for row, k in enumerate(order):
            ax.plot(ranks["ranks"][k], row, "o", color=SERIES[0])
        for number, (low, high) in enumerate(bars):
            y = len(names) - 0.4 + 0.35 * number
            ax.plot([low, high], [y, y], color=LIGHT["ink"], linewidth=3, solid_capstyle="butt")
        ax.set_yticks(range(len(names)), [plain(names[k]) for k in order])
        ax.set_ylim(len(names) + 0.35 * len(bars), -0.6)
        ax.set_xlim(0.8, len(names) + 0.2)
        ax.set_xlabel(f"mean rank over {ranks['graphs']} graphs")
        ax.grid(axis="x")

    label = "mean ranks: " + ", ".join(f"{names[k]} {ranks['ranks'][k]:.2f}" for k in order)
    return Chart(draw, label, title, height=90 + 26 * len(names))
