"""The tables of a comparison: gains in Markdown; for a paper LaTeX and Markdown, and all values in CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from bvat.data.files import csv_text
from bvat.report.pages import markdown_table, signed
from bvat.training.metrics import ACCURACY, METRICS, Metric
from bvat.training.statistics import clear_sign
from bvat.tuning.significance import LEVEL

Result = dict[str, Any]
_LATEX = str.maketrans({c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$",
})  # fmt: skip


class View(NamedTuple):
    """What a comparison says by one metric with one number of labels, a row per graph."""

    metric: Metric
    labels: int | str
    rows: list[dict[str, Any]]
    overall: dict[str, Any]
    """The gain of each method over all graphs."""
    ranks: dict[str, Any] | None

    @property
    def heading(self) -> str:
        if self.labels == "given":
            return "given splits"
        return f"{self.labels} label{'s' * (self.labels != 1)} per class"

    @property
    def graphs(self) -> list[str]:
        return [row["graph"] for row in self.rows]

    def entries(self, method: str) -> list[dict[str, Any]]:
        return [row["variants"][method] for row in self.rows]


def views(result: Result) -> list[View]:
    """Return the views of a comparison, metric by metric, without numbers of labels that no graph has."""
    found = []
    for each in (result, *result.get("more", ())):
        for labels in result["labels"]:
            rows = [row for row in each["rows"] if row["labels"] == labels]
            if rows:
                metric, ranks = METRICS[each.get("metric", ACCURACY)], each.get("ranks") or {}
                found.append(View(metric, labels, rows, each["overall"][str(labels)], ranks.get(str(labels))))
    return found


def unit(result: Result) -> str:
    """Return what differences are paired over."""
    if result.get("split") != "given":
        return "random split"
    return "run" if any(about.get("splits", 1) > 1 for about in result["graphs"].values()) else "seed"


def split_counts(result: Result) -> str:
    """Return how many splits or seeds the rows have: a number, or from the fewest to the most."""
    where = {"seed": " on the split that each graph has", "run": " on the given splits"}
    return f"{_counts(result['rows'])} {unit(result)}s{where.get(unit(result), '')}"


def _counts(rows: Sequence[dict[str, Any]]) -> str:
    counts = {len(row["splits"]) for row in rows}
    return " to ".join(str(count) for count in sorted({min(counts), max(counts)}))


def base_name(result: Result, article: str = "the") -> str:
    """Return what all others are compared with, for a sentence."""
    title: str = result["variants"][result["base"]]["title"]
    return f"{article} plain GCN" if result["base"] == "gcn" else title


def compare_markdown(result: Result) -> str:
    """Return one table per number of labels: a metric of the GCN, gains of the others with intervals."""
    parts, lines = views(result), []
    several = len({view.metric.name for view in parts}) > 1
    for view in parts:
        head = view.heading + f", {view.metric.title}" * several
        rows = [[about["title"], *_gains(view, name, name == result["base"])]
                for name, about in result["variants"].items()]  # fmt: skip
        lines += [*markdown_table([head, *view.graphs, "mean"], rows), ""]
        if view.ranks is not None:
            lines += [f"Mean ranks over {view.ranks['graphs']} graphs: {rank_line(result, view)}", ""]
    what = "value" if several else parts[0].metric.title.replace("test accuracy", "mean test accuracy")
    said = (
        f"First row: {what.removesuffix(' (%)')} of {base_name(result)}{' (%)' * ('(%)' in what)}. Others: "
        f"mean difference to it in points, paired over {split_counts(result)}, ± half the width of its "
        "95 % interval; bold where the interval excludes zero."
    )
    return "\n".join([*lines, said, *(f"\nNote: {note}." for note in notes_of(result))]) + "\n"


def _gains(view: View, name: str, base: bool) -> list[str]:
    """Return the gain of a method on each graph and their mean; of the base its values."""
    digits, entries = view.metric.digits, view.entries(name)
    if base:
        return [*(f"{entry['mean']:.{digits}f}" for entry in entries), ""]
    cells = []
    for gain, p in ((entry["gain"], p_value(entry)) for entry in entries):
        half = f" ± {(gain['high'] - gain['low']) / 2:.{digits}f}" if gain["n"] > 1 else ""
        text = signed(gain["mean"], digits) + half
        cells.append((f"**{text}**" if clear_sign(gain) else text) + (f" ({p})" if p else ""))
    return [*cells, signed(view.overall[name]["mean"], digits)]


def p_value(entry: dict[str, Any]) -> str:
    """Return the corrected p-value of a difference, or nothing where none was computed."""
    if "p_holm" not in entry:
        return ""
    return "p < 0.001" if entry["p_holm"] < 0.001 else f"p {entry['p_holm']:.3f}"


def rank_line(result: Result, view: View) -> str:
    ranks: Any = view.ranks
    titles = [about["title"] for about in result["variants"].values()]
    pairs = sorted(zip(ranks["ranks"], titles, strict=True))
    return (
        f"{', '.join(f'{name} {rank:.2f}' for rank, name in pairs)}. Critical difference "
        f"{ranks['critical_difference']:.2f} (Nemenyi, 5 %); Friedman's test: p = {ranks['friedman_p']:.3f}."
    )


def notes_of(result: Result) -> list[str]:
    """Return what a reader has to know, a sentence each."""
    missing = result.get("missing", ())
    some = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
    notes = {
        result.get("split_note", ""): True,
        "validation labels of the search for settings may be test labels on random splits: --splits given "
        "compares on the split that was searched on": result.get("tuned") and unit(result) == "random split",
        "a positive difference is better, also where a lower value is (log-loss in nats); probabilities are "
        "those that bvat predict writes, which auto calibrates on held-out labels":
            any(view.metric.lower for view in views(result)),
        "p-values are those of a paired permutation test, with Holm's correction for the number of methods "
        "compared on a graph": _tested(result),
        f"{len(missing)} splits are missing ({some}): run the command again to go on": missing,
    }  # fmt: skip
    return [note for note, holds in notes.items() if note and holds]


def _tested(result: Result) -> bool:
    return any("p_holm" in entry for row in result["rows"] for entry in row["variants"].values())


def compare_csv(result: Result) -> str:
    """Return one row per graph, labels, split and method with the value of every metric."""
    parts = [result, *result.get("more", ())]
    return csv_text(
        ("graph", "labels", "split", "method", *(part.get("metric", ACCURACY) for part in parts)),
        (
            (rows[0]["graph"], rows[0]["labels"], split, name,
             *(row["variants"][name]["values"][k] for row in rows))
            for rows in zip(*(part["rows"] for part in parts), strict=True)
            for k, split in enumerate(rows[0]["splits"])
            for name in result["variants"]
        ),
    )  # fmt: skip


class Marks(NamedTuple):
    """How a table marks means: the best, the second, the deviation, and what differs from the base."""

    best: str
    second: str
    spread: str
    significant: str


LATEX = Marks(r"\textbf{%s}", r"\underline{%s}", r" $\pm$ %s", "$^{*}$")
MARKDOWN = Marks("**%s**", "<u>%s</u>", " ± %s", r"\*")


def latex_tables(result: Result) -> str:
    """Return a booktabs table per metric and number of labels; the best is bold, the second underlined."""
    found = ["% needs \\usepackage{booktabs}"]
    for view in views(result):
        found += [
            "\\begin{table}\n\\centering",
            f"\\caption{{{_caption(result, view).translate(_LATEX)}}}",
            f"\\begin{{tabular}}{{l{'c' * len(view.graphs)}}}\n\\toprule",
            " & ".join(["Method", *(graph.translate(_LATEX) for graph in view.graphs)]) + r" \\",
            "\\midrule",
            *(" & ".join([title.translate(_LATEX), *cells]) + r" \\"
              for title, *cells in _means(result, view, LATEX)),
            "\\bottomrule\n\\end{tabular}\n\\end{table}\n",
        ]  # fmt: skip
    return "\n".join(found)


def markdown_tables(result: Result) -> str:
    """Return the same tables in Markdown."""
    found = []
    for view in views(result):
        found += markdown_table([view.heading, *view.graphs], _means(result, view, MARKDOWN))
        found.append(f"\n{_caption(result, view)}\n")
    return "\n".join(found)


def _means(result: Result, view: View, marks: Marks) -> list[list[str]]:
    """Return the title of each method and its mean ± deviation on each graph."""
    columns = [_column(row["variants"], view.metric, marks) for row in view.rows]
    return [[about["title"], *cells]
            for about, *cells in zip(result["variants"].values(), *columns, strict=True)]  # fmt: skip


def _column(entries: dict[str, dict[str, Any]], metric: Metric, marks: Marks) -> list[str]:
    """Return the cells of a graph. Means that are printed alike share their place."""
    shown = [f"{entry['mean']:.{metric.digits}f}" for entry in entries.values()]
    ranked = sorted(set(map(float, shown)), reverse=not metric.lower)
    forms = dict(zip(ranked, (marks.best, marks.second), strict=False)) if len(shown) > 1 else {}
    cells = []
    for mean, entry in zip(shown, entries.values(), strict=True):
        spread = marks.spread % f"{entry['std']:.{metric.digits}f}" if entry["n"] > 1 else ""
        star = marks.significant if entry.get("p_holm", 1.0) < LEVEL else ""
        cells.append(forms.get(float(mean), "%s") % mean + spread + star)
    return cells


def _caption(result: Result, view: View) -> str:
    counts = _counts(view.rows)
    spread, many = ("mean", "") if counts == "1" else ("mean and standard deviation", "s")
    title = view.metric.title[0].upper() + view.metric.title[1:]
    text = f"{title}, {view.heading}: {spread} over {counts} {unit(result)}{many}"
    text += "; lower is better" * view.metric.lower
    if _tested(result):
        base = result["variants"][result["base"]]["title"]
        text += f". * differs from {base} at 5 % (paired permutation test, Holm's correction per graph)"
    return f"{text}."
