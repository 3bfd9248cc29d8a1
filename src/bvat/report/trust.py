"""The part of a run's page that says what to believe: how sure predictions are, and what to label next."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bvat.errors import BvatError
from bvat.graph import UNKNOWN, Graph
from bvat.inference.runs import SavedRun
from bvat.report.charts import SERIES, Chart
from bvat.report.pages import Cell
from bvat.report.svg import LIGHT
from bvat.store.results import ENOUGH
from bvat.training.metrics import calibration_bins
from bvat.training.statistics import wilson
from bvat.trust.held_out import HeldOut, held_out
from bvat.trust.review import review
from bvat.trust.suggest import suggest

ROWS = 10
"""Rows of a table on the page; the commands list all."""
LARGE = 50_000
"""On larger graphs the page has no suggestions, which take long there."""


def trust_sections(run: SavedRun, graph: Graph) -> dict[str, Any]:
    """Return what the page shows: a reliability diagram, doubtful labels, and nodes to label next."""
    try:
        held = held_out(run)
    except BvatError:  # one label per class
        held = None
    p = run.classifier(graph).probabilities(graph)
    found: dict[str, Any] = {"reliability": None, "doubtful": [], "next_nodes": []}
    if held is not None:
        if held.labels.size >= ENOUGH:
            found["reliability"] = reliability_diagram(held)
        table = review(held).columns(graph, p)
        names = ("id", "given", "suggested", "score", "neighbours")
        found["doubtful"] = [
            (node, Cell(given), Cell(likelier), f"{score:.2f}", Cell(around))
            for node, given, likelier, score, around in zip(*(table[name] for name in names), strict=True)
            if score < 0.5
        ][:ROWS]
    unlabelled = int((graph.labels == UNKNOWN).sum())
    if unlabelled and graph.num_nodes <= LARGE:
        labelled = (graph.labels != UNKNOWN).nonzero()[:, 0]
        table = suggest(graph, p, labelled, min(ROWS, unlabelled)).columns(graph)
        found["next_nodes"] = [(n, Cell(why)) for n, why in zip(table["id"], table["why"], strict=True)]
    return found


def reliability_diagram(held: HeldOut) -> Chart:
    """Draw the accuracy in each bin of confidence with its 95 % interval; calibrated is the diagonal."""
    confidence, accuracy, count, error = calibration_bins(held.probabilities, held.labels)

    def draw(ax: Axes) -> None:
        kept = count > 0
        x, y = confidence[kept], accuracy[kept]
        ends = np.array([wilson(100 * a, int(n)) for a, n in zip(y, count[kept], strict=True)]) / 100
        ax.plot([0, 1], [0, 1], "--", color=LIGHT["soft"], linewidth=1)
        ax.errorbar(x, y, yerr=np.abs(ends.T - y), fmt="o", color=SERIES[0], capsize=3)
        ax.set(xlim=(0, 1.02), ylim=(0, 1.02), xlabel="confidence", ylabel="accuracy")

    label = f"reliability diagram of {held.labels.size} held-out nodes, calibration error {error:.3f}"
    return Chart(draw, label, f"Calibration error {100 * error:.1f} %")
