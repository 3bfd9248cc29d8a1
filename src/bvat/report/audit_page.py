"""The page of ``bvat audit``: how fragile predictions are, which nodes are worst, which model is better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bvat.audit.audit import REACH
from bvat.audit.result import Audit, interval
from bvat.graph import UNKNOWN, Graph
from bvat.inference.classifier import Classifier
from bvat.inference.tables import node_id
from bvat.report.pages import Cell, render
from bvat.report.plots import audit_charts
from bvat.training.provenance import versions
from bvat.training.statistics import accuracy_text

BUDGET_NORMS = {
    "graph": "Frobenius norm of R (graph)",
    "rows": "longest row of R (rows)",
    "node": "the only row of R, whichever it is (node)",
}
SHOWN = 12
"""Number of the most fragile nodes that are listed."""


class AuditedRun(NamedTuple):
    """A run, its model and the result of the audit."""

    name: str
    classifier: Classifier
    audit: Audit


def audit_page(graph: Graph, runs: Sequence[AuditedRun], command: str) -> str:
    first = runs[0]
    found = first.audit.summary()
    epsilon = f"{first.audit.epsilon:g}"
    right_and_wrong = [[run.name, *map(median_text, _right_and_wrong(graph, run))] for run in runs]
    larger = float((first.audit.smallest > runs[-1].audit.smallest).double().mean())
    return render(
        "audit.html",
        title=f"Audit of {first.name}",
        graph=graph,
        runs=runs,
        summary=found,
        numbers={
            "median smallest change of class": _plain(found["median_smallest"]),
            "relative to the surrounding features": _percent(found["median_relative"]),
            f"median LDS at ε = {epsilon}": _plain(found["median_lds"]),
            "no change of class found": _not_found(found),
        },
        comparison=comparison(graph, runs) if len(runs) > 1 else [],
        larger=f"{100 * larger:.0f} %",
        charts=audit_charts([(run.name, run.audit) for run in runs]),
        right_and_wrong=right_and_wrong if set(right_and_wrong[0][1:]) != {"-"} else [],
        fragile=_fragile(graph, first),
        certified=[
            [BUDGET_NORMS[budget], *(interval(run.audit.summary(), budget) for run in runs)]
            for budget in found["budgets"]
        ],
        epsilon=epsilon,
        reach=f"{REACH:g}",
        command=command,
        versions=versions(),
    )


def comparison(graph: Graph, runs: Sequence[AuditedRun]) -> list[list[str]]:
    """Return the measures of two runs, one row each, with ▲ at the better one."""
    summaries = [run.audit.summary() for run in runs]
    settings = [run.classifier.settings for run in runs]
    measures = [marked(words, key, summaries) for words, key in (
        ("median LDS", "median_lds"),
        ("mean LDS", "mean_lds"),
        ("median smallest change", "median_smallest"),
        ("relative to the surrounding features", "median_relative"),
        ("smallest change of the most fragile tenth", "tenth_smallest"),
    )]  # fmt: skip
    return [
        ["method", *(s.method for s in settings)],
        ["model", *(s.model for s in settings)],
        ["test accuracy", *(_accuracy(graph, run) for run in runs)],
        *measures,
        ["no change of class found", *map(_not_found, summaries)],
    ]


def marked(words: str, key: str, summaries: Sequence[dict[str, Any]]) -> list[str]:
    """Return a row in which ▲ marks the better value: a low LDS, a large change of class or none found."""
    sign = -1 if key.endswith("lds") else 1
    a, b = (sign * (math.inf if s[key] is None else s[key]) for s in summaries)
    show = _percent if key == "median_relative" else _plain
    marks = ("▲ " if a > b else "", "▲ " if b > a else "")
    return [words, *(mark + show(s[key]) for mark, s in zip(marks, summaries, strict=True))]


def _right_and_wrong(graph: Graph, run: AuditedRun) -> list[Tensor]:
    """Return the smallest changes of correct and of incorrect predictions, without the training nodes."""
    nodes = run.audit.nodes
    labels = run.classifier.labels(graph).cpu()[nodes]
    known = (labels != UNKNOWN) & ~torch.isin(nodes, graph.train.cpu())
    right = run.audit.predicted == labels
    return [run.audit.smallest[known & which] for which in (right, ~right)]


def _fragile(graph: Graph, run: AuditedRun) -> list[list[Any]]:
    """Return the nodes that change class most easily, one row each."""
    names, found = (*run.classifier.class_names, "unknown"), run.audit  # the label -1 reads the last entry
    labels = run.classifier.labels(graph).cpu()[found.nodes]
    return [
        [
            node_id(graph, int(found.nodes[i])),
            Cell(names[found.predicted[i]]),
            f"{100 * float(found.confidence[i]):.0f} %",
            Cell(names[found.becomes[i]]),
            Cell(names[labels[i]]),
            _plain(found.smallest[i]),
            _plain(found.lds[i]),
        ]
        for i in found.smallest.argsort()[:SHOWN].tolist()
        if math.isfinite(float(found.smallest[i]))
    ]


def _accuracy(graph: Graph, run: AuditedRun) -> str:
    if not graph.test.numel():
        return "-"
    with torch.no_grad():
        right = run.classifier.models[0](graph).argmax(1) == run.classifier.labels(graph)
    accuracy = 100 * float(right[graph.test].double().mean())
    return accuracy_text(accuracy, len(graph.test), digits=1)


def median_text(smallest: Tensor) -> str:
    """Return the median of some nodes, and for how many of them no change was found."""
    if not smallest.numel():
        return "-"
    median = float(smallest.double().median())
    none = f"none found for {int((~smallest.isfinite()).sum()):,} of {smallest.numel():,} nodes"
    return f"{_plain(median)} ({none})" if math.isfinite(median) else none


def _not_found(summary: dict[str, Any]) -> str:
    return f"{summary['not_found']:,} of {summary['nodes']:,} nodes"


def _plain(value: Any) -> str:
    return "none found" if value is None or not math.isfinite(float(value)) else f"{float(value):.3g}"


def _percent(value: float | None) -> str:
    return "none found" if value is None else f"{100 * value:.2g} %"
