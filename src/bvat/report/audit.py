"""The page of ``bvat audit``: how fragile the predictions are, of which nodes, and of which model less."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bvat._version import __version__
from bvat.audit.audit import REACH, Audit, perturbed_rows
from bvat.graph import UNKNOWN, Graph
from bvat.inference.classifier import Classifier
from bvat.inference.tables import node_id
from bvat.report.audit_neighbourhood import legend, neighbourhood, predicted_classes
from bvat.report.html import Markup, claim_list, page, provenance, section, table, tag, tiles
from bvat.report.svg import Line, line_chart

SHOWN = 12
"""How many of the most fragile nodes are drawn."""

_RIGHT_AND_WRONG = (
    "The median smallest change where the prediction is right and where it is wrong, over the nodes whose "
    "label is known and was not trained on. If wrong ones are more fragile, a small number in the table is a "
    "reason to look twice."
)
_FRAGILE = (
    "The nodes that the smallest changes take to another class, with their neighbours one and two hops away. "
    "Point at a node for its name and class."
)
_SEARCHED = (
    "All without dropout, for each node u by itself, over changes R of the feature rows in its receptive "
    "field F(u): the nodes within as many hops as the model looks."
)
_LDS = (
    " is the largest KL(p(X) ‖ p(X + R)) found with every row of R at most ε = {epsilon} long: how far the "
    "prediction moves. The search follows the gradient from several starts; the true maximum may be larger."
)
_SMALLEST = (
    " is the Frobenius norm of the shortest R found that gives u another class, in the units of the features "
    "as the model reads them. The margin to each other class is linearised again and again, then the length "
    "is bisected; the true minimum may be smaller. It is searched for up to {reach} times the typical length "
    "of the features around u. Relative values divide it by the norm of the features in F(u)."
)


class AuditedRun(NamedTuple):
    """A run, its model, and what the audit found."""

    name: str
    classifier: Classifier
    audit: Audit


def audit_page(graph: Graph, runs: Sequence[AuditedRun], command: str) -> str:
    """Return the page for one run, or for one compared with another."""
    first = runs[0]
    found = first.audit.summary()
    epsilon = f"{first.audit.epsilon:g}"
    lead = tag(
        "p",
        f"How little must the features around a node of {graph.name} change before the model of "
        f"{first.name} gives it another class? For each of {found['nodes']:,} nodes the worst change of the "
        "features in its receptive field was searched for.",
    )
    numbers = {
        "smallest change of class, median": _plain(found["median_smallest"]),
        "the same, relative to the features around": _percent(found["median_relative"]),
        f"LDS at ε = {epsilon}, median": _plain(found["median_lds"]),
        "nodes audited": f"{found['nodes']:,}",
    }
    parts = [lead, tiles(numbers)]
    if len(runs) > 1:
        parts.append(section("Comparison", *_comparison(graph, runs), name="comparison"))
    parts.append(section("Distribution", _distributions(runs), name="distribution"))
    if any(part is not None for part in _right_and_wrong(graph, first)):
        parts.append(_right_wrong_section(graph, runs))
    parts.append(section("The most fragile nodes", *_fragile(graph, first), name="fragile"))
    parts.append(section("How it was measured", *_method(epsilon, command), name="method"))
    return page(f"Audit of {first.name}", *parts)


def less_fragile(first: dict[str, Any], second: dict[str, Any]) -> list[dict[str, Any]]:
    """Compare two summaries: LDS should be low, and the smallest change of class large."""
    claims = []
    for words, key, sign in (
        ("lower median LDS", "median_lds", -1),
        ("larger smallest change, median", "median_smallest", 1),
        ("larger smallest change, most fragile tenth", "tenth_smallest", 1),
    ):
        a, b = first[key], second[key]
        left, right = (math.inf if v is None else v for v in (a, b))
        claims.append(
            {"holds": sign * (left - right) > 0, "text": f"{words}: {_plain(a)} against {_plain(b)}"}
        )
    return claims


def _comparison(graph: Graph, runs: Sequence[AuditedRun]) -> list[Markup]:
    summaries = [run.audit.summary() for run in runs]
    claims = less_fragile(*summaries)
    names = [run.name for run in runs]
    won = sum(claim["holds"] for claim in claims)
    verdict = (
        f"{names[0]} is less fragile than {names[1]} by every measure."
        if won == len(claims)
        else f"{names[0]} is more fragile than {names[1]} by every measure."
        if won == 0
        else f"Neither is less fragile by every measure: {names[0]} is by {won} of {len(claims)}."
    )
    settings = [run.classifier.settings for run in runs]
    rows = [
        ["method", *(s.method for s in settings)],
        ["model", *(s.model for s in settings)],
        ["test accuracy", *(_accuracy(graph, run) for run in runs)],
        ["median LDS", *(_plain(s["median_lds"]) for s in summaries)],
        ["mean LDS", *(_plain(s["mean_lds"]) for s in summaries)],
        ["median smallest change", *(_plain(s["median_smallest"]) for s in summaries)],
        ["relative to the features around", *(_percent(s["median_relative"]) for s in summaries)],
        ["smallest change, most fragile tenth", *(_plain(s["tenth_smallest"]) for s in summaries)],
    ]
    a, b = (run.audit.smallest for run in runs)
    share = f"{100 * float((a > b).double().mean()):.0f} %"
    return [
        tag("p", tag("b", verdict)),
        claim_list([{**claim, "text": f"{names[0]} has the {claim['text']}"} for claim in claims]),
        table(["", *names], rows),
        tag("p", f"Node by node: for {share} of the nodes {names[0]} needs the larger change.", cls="soft"),
    ]


def _distributions(runs: Sequence[AuditedRun]) -> Markup:
    """Return for both measures the share of nodes up to each value."""
    epsilon = f"{runs[0].audit.epsilon:g}"
    flips = [_cumulative(run.name, run.audit.smallest, k) for k, run in enumerate(runs)]
    spread = [_cumulative(run.name, run.audit.lds, k) for k, run in enumerate(runs)]
    return tag(
        "div",
        tag("figure", tag("h3", "Nodes whose class a change of this length can change"),
            line_chart(_cut(flips), "length of the change, units of the features", "% of nodes", floor=0),
            tag("figcaption", "Lower is better: fewer nodes give way.")),
        tag("figure", tag("h3", f"Nodes whose LDS is at most this, ε = {epsilon}"),
            line_chart(_cut(spread), "LDS (KL divergence)", "% of nodes", floor=0),
            tag("figcaption", "Higher is better: more predictions hardly move.")),
        cls="charts",
    )  # fmt: skip


def _cumulative(label: str, values: Tensor, number: int) -> Line:
    """Return the share of nodes (in percent) up to each value, at 101 of their quantiles."""
    ordered = np.sort(values.double().numpy())
    places = np.unique(np.linspace(0, ordered.size - 1, 101).round().astype(int))
    share = 100 * (places + 1) / ordered.size
    keep = np.isfinite(ordered[places])
    x, y = ordered[places][keep], share[keep]
    return Line(label, [0.0, *x.tolist()], [0.0, *y.tolist()], colour=number, dashed=number > 0)


def _cut(lines: Sequence[Line]) -> list[Line]:
    """Leave out the last few nodes, whose values would squeeze the rest together."""
    ends = [x for line in lines for x, y in zip(line.x, line.y, strict=True) if y <= 98] or [0.0]
    cut = []
    for line in lines:
        kept = [(x, y) for x, y in zip(line.x, line.y, strict=True) if x <= max(ends)]
        cut.append(replace(line, x=[x for x, _ in kept], y=[y for _, y in kept]))
    return cut


def _right_and_wrong(graph: Graph, run: AuditedRun) -> list[float | None]:
    """Return the median smallest change of right and of wrong predictions, not counting training nodes."""
    labels = run.classifier.labels(graph).cpu()
    trained = torch.zeros(graph.num_nodes, dtype=torch.bool)
    trained[graph.train.cpu()] = True
    nodes = run.audit.nodes
    known = (labels[nodes] != UNKNOWN) & ~trained[nodes]
    right = run.audit.predicted == labels[nodes]
    return [_median(run.audit.smallest[known & which]) for which in (right, ~right)]


def _right_wrong_section(graph: Graph, runs: Sequence[AuditedRun]) -> Markup:
    rows = [[run.name, *(_plain(part) for part in _right_and_wrong(graph, run))] for run in runs]
    return section(
        "Right and wrong predictions",
        tag("p", _RIGHT_AND_WRONG),
        table(["", "right", "wrong"], rows),
        name="right",
    )


def _fragile(graph: Graph, run: AuditedRun) -> list[Markup]:
    model: Any = run.classifier.models[0]
    predicted, names = predicted_classes(model, graph), run.classifier.class_names
    order = [int(i) for i in run.audit.smallest.argsort() if math.isfinite(float(run.audit.smallest[i]))]
    if not order:
        return [tag("p", "No change of class was found for any node.")]
    labels = run.classifier.labels(graph).cpu()
    figures = []
    for i in order[:SHOWN]:
        node, becomes = int(run.audit.nodes[i]), int(run.audit.becomes[i])
        drawing = neighbourhood(graph, names, predicted, node, becomes, perturbed_rows(model, graph, node))
        label = int(labels[node])
        known = "label unknown" if label == UNKNOWN else f"label {names[label]}"
        sure = f"{100 * float(run.audit.confidence[i]):.0f} %"
        facts = [
            f"{names[int(predicted[node])]} ({sure}) → {names[becomes]}; {known}",
            f"smallest change {_plain(float(run.audit.smallest[i]))}, LDS {_plain(float(run.audit.lds[i]))}",
        ]
        caption = tag("figcaption", *[tag("div", fact) for fact in facts])
        figures.append(tag("figure", tag("h3", node_id(graph, node)), drawing, caption))
    columns = "grid-template-columns: repeat(auto-fill, minmax(240px, 1fr))"
    return [tag("p", _FRAGILE), legend(), tag("div", *figures, cls="charts", style=columns)]


def _method(epsilon: str, command: str) -> list[Markup]:
    return [
        tag("p", _SEARCHED),
        tag("p", tag("b", "LDS"), _LDS.format(epsilon=epsilon)),
        tag("p", tag("b", "Smallest change"), _SMALLEST.format(reach=f"{REACH:g}")),
        provenance(command, {"bvat": __version__}),
    ]


def _accuracy(graph: Graph, run: AuditedRun) -> str:
    if not graph.test.numel():
        return "-"
    right = predicted_classes(run.classifier.models[0], graph) == run.classifier.labels(graph).cpu()
    return f"{100 * float(right[graph.test.cpu()].double().mean()):.1f} %"


def _median(values: Tensor) -> float | None:
    return float(values.double().median()) if values.numel() else None


def _plain(value: float | None) -> str:
    return "none found" if value is None or not math.isfinite(value) else f"{value:.3g}"


def _percent(value: float | None) -> str:
    return "none found" if value is None else f"{100 * value:.2g} %"
