"""The page of ``bvat audit``: how fragile predictions are, which nodes are worst, which model is better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Circle
from torch import Tensor

from bvat.audit.audit import REACH, Audit, perturbed_rows
from bvat.graph import UNKNOWN, Graph
from bvat.inference.classifier import Classifier
from bvat.inference.tables import node_id
from bvat.report.charts import SERIES, Chart
from bvat.report.pages import render
from bvat.report.plots import audit_charts
from bvat.report.svg import LIGHT, Hints
from bvat.training.provenance import versions
from bvat.training.statistics import accuracy_text

SHOWN = 12
"""Number of the most fragile nodes that are drawn."""
SIZE = 260
RINGS = ((62.0, 12), (110.0, 24))
"""Radius and number of nodes on each ring around a node: those that the perturbation changes most."""


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
    labels = run.classifier.labels(graph).cpu()
    trained = torch.zeros(graph.num_nodes, dtype=torch.bool)
    trained[graph.train.cpu()] = True
    nodes = run.audit.nodes
    known = (labels[nodes] != UNKNOWN) & ~trained[nodes]
    right = run.audit.predicted == labels[nodes]
    return [run.audit.smallest[known & which] for which in (right, ~right)]


def _fragile(graph: Graph, run: AuditedRun) -> list[tuple[Chart, str, str]]:
    """Return pictures of the nodes that change class most easily, with two lines about each."""
    model: Any = run.classifier.models[0]
    predicted, names = _predicted(run, graph), run.classifier.class_names
    order = [int(i) for i in run.audit.smallest.argsort() if math.isfinite(float(run.audit.smallest[i]))]
    labels = run.classifier.labels(graph).cpu()
    shown = []
    for i in order[:SHOWN]:
        node, becomes = int(run.audit.nodes[i]), int(run.audit.becomes[i])
        label = int(labels[node])
        known = "label unknown" if label == UNKNOWN else f"label {names[label]}"
        sure = f"{100 * float(run.audit.confidence[i]):.0f} %"
        chart = neighbourhood(graph, names, predicted, node, becomes, perturbed_rows(model, graph, node))
        change = f"smallest change {_plain(run.audit.smallest[i])}, LDS {_plain(run.audit.lds[i])}"
        shown.append((chart, f"{names[int(predicted[node])]} ({sure}) → {names[becomes]}; {known}", change))
    return shown


def neighbourhood(
    graph: Graph,
    class_names: Sequence[str],
    predicted: Tensor,
    node: int,
    becomes: int,
    rows: tuple[Tensor, Tensor],
) -> Chart:
    """Draw a node, which a perturbation changes to the class ``becomes``, with its neighbours at two hops.

    Shapes: predicted int64 (N); rows, the nodes of its receptive field (m) and the norm of the perturbation
    at each (m).
    """
    total = float(rows[1].square().sum().sqrt()) or 1.0
    share = {int(v): float(length) / total for v, length in zip(*rows, strict=True)}
    at = _placed(graph, node, share)
    left_out = len(share) - len(at)
    edges = [(v, w) for v in at for w in _neighbours(graph, v) if w in at and v < w]
    train = set(graph.train.tolist())
    fills = {int(predicted[node]): SERIES[0]} | {becomes: SERIES[1]}

    def draw(ax: Axes) -> Hints:
        ax.set(xlim=(0, SIZE), ylim=(0, SIZE), aspect="equal")
        ax.set_axis_off()
        for v, w in edges:
            ax.plot(*zip(at[v], at[w], strict=True), color=LIGHT["soft"], alpha=0.4, linewidth=1)
        hints: Hints = []
        for v, place in reversed(at.items()):
            label = int(predicted[v])
            outline = LIGHT["ink"] if v in train else LIGHT["page"]
            circle = Circle(place, 3 + 9 * share.get(v, 0.0), facecolor=fills.get(label, SERIES[7]),
                            edgecolor=outline, linewidth=1.3, zorder=3)  # fmt: skip
            ax.add_patch(circle)
            part = f"{100 * share.get(v, 0.0):.0f} % of the change"
            hints.append((circle, [f"{node_id(graph, v)}: {class_names[label]}, {part}"]))
        if left_out:
            ax.text(SIZE - 4, 4, f"{left_out} more not drawn", ha="right")
        return hints

    name = node_id(graph, node)
    return Chart(draw, f"{name} and its neighbours", name, SIZE, SIZE)


def _placed(graph: Graph, node: int, share: dict[int, float]) -> dict[int, tuple[float, float]]:
    """Return where nodes are drawn: on rings, near their own neighbours."""
    angle, ring = {node: 0.0}, [node]
    places, seen = {node: (SIZE / 2, SIZE / 2)}, {node}
    for radius, most in RINGS:
        parent: dict[int, int] = {}
        for inner in ring:
            for outer in _neighbours(graph, inner):
                if outer not in seen and outer in share:
                    seen.add(outer)
                    parent[outer] = inner
        ring = sorted(parent, key=lambda v: (-share[v], v))[:most]
        ring.sort(key=lambda v: (angle[parent[v]], v))
        for k, v in enumerate(ring):
            angle[v] = 2 * math.pi * (k + 0.5) / len(ring)
            places[v] = SIZE / 2 + radius * math.sin(angle[v]), SIZE / 2 + radius * math.cos(angle[v])
    return places


def _neighbours(graph: Graph, node: int) -> list[int]:
    a = graph.adjacency
    return [int(v) for v in a.col[int(a.crow[node]) : int(a.crow[node + 1])]]


def _predicted(run: AuditedRun, graph: Graph) -> Tensor:
    model: Any = run.classifier.models[0]
    with torch.no_grad():
        classes: Tensor = model(graph).argmax(1).cpu()
    return classes


def _accuracy(graph: Graph, run: AuditedRun) -> str:
    if not graph.test.numel():
        return "-"
    right = _predicted(run, graph) == run.classifier.labels(graph).cpu()
    accuracy = 100 * float(right[graph.test.cpu()].double().mean())
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
