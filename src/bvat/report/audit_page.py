"""The page of ``bvat audit``: how fragile predictions are, which nodes are worst, which model is better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bvat.audit.audit import REACH, Audit, perturbed_rows
from bvat.graph import UNKNOWN, Graph
from bvat.inference.classifier import Classifier
from bvat.report.audit_curves import distribution_charts
from bvat.report.audit_neighbourhood import neighbourhood, neighbourhood_legend, predicted_classes
from bvat.report.html import Markup, claim_list, join, page, provenance, section, table, tag, tiles
from bvat.training.provenance import versions
from bvat.training.statistics import accuracy_text

SHOWN = 12
"""Number of the most fragile nodes that are drawn."""

_RIGHT_AND_WRONG = (
    "The median smallest change of correct and of incorrect predictions, over the nodes whose label is known "
    "and was not used for training; a node for which none was found counts as larger than all others. If "
    "incorrect predictions are more fragile, a small number in the table is a reason to check a prediction."
)
_FRAGILE = (
    "The nodes that change class under the smallest changes, each in the middle of its picture, with its "
    "neighbours one and two hops away. "
    "Hover over a node for its name and class."
)
_SEARCHED = (
    "Everything is measured without dropout and for each node u separately, over changes R of the feature "
    "rows in its receptive field F(u): the nodes whose features the prediction of u depends on."
)
_LDS = (
    " is the largest KL(p(X) ‖ p(X + R)) found with every row of R of norm at most ε = {epsilon}: how far "
    "the prediction moves. The search follows the gradient from several starts; the true maximum may be "
    "larger."
)
_SMALLEST = (
    " is the Frobenius norm of the smallest R found that changes the class of u, in the units of the "
    "features as the model sees them. The margin to every other class is linearised repeatedly, then "
    "the norm is bisected; the true minimum may be smaller. The search goes up to {reach} times the typical "
    "norm of the features around u. Relative values are divided by the norm of the features in F(u)."
)


class AuditedRun(NamedTuple):
    """A run, its model and the result of the audit."""

    name: str
    classifier: Classifier
    audit: Audit


def audit_page(graph: Graph, runs: Sequence[AuditedRun], command: str) -> str:
    """Return the page of one run, or of two runs compared."""
    first = runs[0]
    found = first.audit.summary()
    epsilon = f"{first.audit.epsilon:g}"
    lead = tag(
        "p",
        f"How little must the features around a node of {graph.name} change before the model of "
        f"{first.name} predicts another class? For each of {found['nodes']:,} nodes, the audit searches for "
        "the worst change of the features in its receptive field.",
    )
    numbers = {
        "median smallest change of class": _plain(found["median_smallest"]),
        "relative to the surrounding features": _percent(found["median_relative"]),
        f"median LDS at ε = {epsilon}": _plain(found["median_lds"]),
        "no change of class found": _not_found(found),
    }
    parts = [lead, tiles(numbers)]
    if len(runs) > 1:
        parts.append(section("Comparison", *_comparison(graph, runs), name="comparison"))
    parts.append(section("Distribution", _distributions(runs), name="distribution"))
    if any(part.numel() for part in _right_and_wrong(graph, first)):
        parts.append(_right_wrong_section(graph, runs))
    parts.append(section("The most fragile nodes", *_fragile(graph, first), name="fragile"))
    parts.append(section("How this was measured", *_method(epsilon, command), name="method"))
    return page(f"Audit of {first.name}", *parts)


def less_fragile(first: dict[str, Any], second: dict[str, Any]) -> list[dict[str, Any]]:
    """Compare two summaries: a low LDS and a large smallest change of class are better."""
    claims = []
    for words, key, sign in (
        ("lower median LDS", "median_lds", -1),
        ("larger median smallest change", "median_smallest", 1),
        ("larger smallest change of the most fragile tenth", "tenth_smallest", 1),
    ):
        a, b = first[key], second[key]
        left, right = (math.inf if v is None else v for v in (a, b))
        claims.append({"holds": sign * (left - right) > 0, "text": f"{words}: {_plain(a)} vs. {_plain(b)}"})
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
        else f"Neither is less fragile by every measure: {names[0]} wins {won} of {len(claims)}."
    )
    settings = [run.classifier.settings for run in runs]
    rows = [
        ["method", *(s.method for s in settings)],
        ["model", *(s.model for s in settings)],
        ["test accuracy", *(_accuracy(graph, run) for run in runs)],
        ["median LDS", *(_plain(s["median_lds"]) for s in summaries)],
        ["mean LDS", *(_plain(s["mean_lds"]) for s in summaries)],
        ["median smallest change", *(_plain(s["median_smallest"]) for s in summaries)],
        ["relative to the surrounding features", *(_percent(s["median_relative"]) for s in summaries)],
        ["smallest change of the most fragile tenth", *(_plain(s["tenth_smallest"]) for s in summaries)],
        ["no change of class found", *map(_not_found, summaries)],
    ]
    a, b = (run.audit.smallest for run in runs)
    share = f"{100 * float((a > b).double().mean()):.0f} %"
    return [
        tag("p", tag("b", verdict)),
        claim_list([{**claim, "text": f"{names[0]} has the {claim['text']}"} for claim in claims]),
        table(["", *names], rows),
        tag("p", f"Node by node, {names[0]} needs the larger change for {share} of the nodes.", cls="soft"),
    ]


def _distributions(runs: Sequence[AuditedRun]) -> Markup:
    """Return the cumulative distribution of both measures over the nodes."""
    flips, spread = distribution_charts([(run.name, run.audit) for run in runs])
    charts = [
        flips.figure("Lower is better: fewer nodes change class."),
        spread.figure("Higher is better: more predictions barely move."),
    ]
    return tag("div", *charts, cls="charts")


def _right_and_wrong(graph: Graph, run: AuditedRun) -> list[Tensor]:
    """Return the smallest changes of correct and of incorrect predictions, without the training nodes."""
    labels = run.classifier.labels(graph).cpu()
    trained = torch.zeros(graph.num_nodes, dtype=torch.bool)
    trained[graph.train.cpu()] = True
    nodes = run.audit.nodes
    known = (labels[nodes] != UNKNOWN) & ~trained[nodes]
    right = run.audit.predicted == labels[nodes]
    return [run.audit.smallest[known & which] for which in (right, ~right)]


def _right_wrong_section(graph: Graph, runs: Sequence[AuditedRun]) -> Markup:
    rows = [[run.name, *map(_median, _right_and_wrong(graph, run))] for run in runs]
    return section(
        "Correct and incorrect predictions",
        tag("p", _RIGHT_AND_WRONG),
        table(["", "correct", "incorrect"], rows),
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
        figures.append(drawing.figure(join([tag("div", fact) for fact in facts])))
    columns = "grid-template-columns: repeat(auto-fill, minmax(240px, 1fr))"
    return [tag("p", _FRAGILE), neighbourhood_legend(), tag("div", *figures, cls="charts", style=columns)]


def _method(epsilon: str, command: str) -> list[Markup]:
    return [
        tag("p", _SEARCHED),
        tag("p", tag("b", "LDS"), _LDS.format(epsilon=epsilon)),
        tag("p", tag("b", "Smallest change"), _SMALLEST.format(reach=f"{REACH:g}")),
        provenance(command, versions()),
    ]


def _accuracy(graph: Graph, run: AuditedRun) -> str:
    if not graph.test.numel():
        return "-"
    right = predicted_classes(run.classifier.models[0], graph) == run.classifier.labels(graph).cpu()
    accuracy = 100 * float(right[graph.test.cpu()].double().mean())
    return accuracy_text(accuracy, len(graph.test), digits=1)


def _median(smallest: Tensor) -> str:
    """Return the median of some nodes, and for how many of them no change was found."""
    if not smallest.numel():
        return "-"
    median = float(smallest.double().median())
    none = f"none found for {int((~smallest.isfinite()).sum()):,} of {smallest.numel():,} nodes"
    return f"{_plain(median)} ({none})" if math.isfinite(median) else none


def _not_found(summary: dict[str, Any]) -> str:
    return f"{summary['not_found']:,} of {summary['nodes']:,} nodes"


def _plain(value: float | None) -> str:
    return "none found" if value is None or not math.isfinite(value) else f"{value:.3g}"


def _percent(value: float | None) -> str:
    return "none found" if value is None else f"{100 * value:.2g} %"
