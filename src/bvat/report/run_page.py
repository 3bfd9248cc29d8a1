"""The page of ``bvat train``: curves, confusions, and what to believe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from bvat.baselines.table import BASELINES
from bvat.data.files import write_atomic
from bvat.errors import BvatError
from bvat.graph import Graph
from bvat.inference.runs import SavedRun, open_run
from bvat.report.charts import SERIES, Chart
from bvat.report.pages import Cell, render
from bvat.report.plots import training_charts
from bvat.report.svg import LIGHT
from bvat.store.folder import RunFolder
from bvat.store.results import ENOUGH, cross_validation_text, ensemble_notes, member_rows, score_texts
from bvat.training.loop import predict
from bvat.training.metrics import calibration_bins
from bvat.training.phases import stopping_text
from bvat.training.settings import Settings
from bvat.training.state import restore_model
from bvat.training.statistics import wilson
from bvat.trust.held_out import HeldOut, held_out
from bvat.trust.review import SUSPECT, review
from bvat.trust.suggest import suggest
from bvat.tuning.variants import Variant

PAGE = "report.html"
ROWS = 10
"""Rows of a table of nodes; the commands list all."""
LARGE = 50_000
"""On larger graphs the page has no suggestions, which take long there."""
MOST_CLASSES = 20
"""With more classes a matrix is unreadable: the most common confusions are listed instead."""


def write_run_page(
    folder: RunFolder,
    graph: Graph,
    settings: Settings,
    seeds: Sequence[int],
    summary: dict[str, Any],
    command: str = "",
) -> None:
    """Write ``report.html`` into a finished run folder; ``summary`` is what ``bvat train --json`` prints.

    Curves are means over the seeds, predictions are those of the first.
    """
    model = restore_model(settings, graph.num_features, graph.num_classes, folder.weights(seeds[0]))
    logits = predict(model.to(graph.device), graph).cpu()
    fitted = settings.method in BASELINES
    curves = [] if fitted else [_read_curves(folder, seed) for seed in seeds]
    found = summary["cross_validation"]
    content = render(
        "run.html",
        title=f"{Variant(settings.model, settings.method).title} on {graph.name}",
        about=f"{graph!r}; {graph.validation}.",
        summary=summary,
        numbers=_numbers(summary),
        cross_validation=cross_validation_text(found) if found else "",
        members=member_rows(summary),
        ensemble_notes=ensemble_notes(summary),
        training_charts=list(training_charts(curves).values()) if curves else [],
        kept="last epoch" if settings.select == "last" else "best epoch on the validation nodes",
        stopped=stopping_text(summary["stopped"], summary["seeds"]),
        seeds=seeds,
        command=command,
        settings={settings.method: settings.as_dict()},
        **_predictions(graph, logits),
        f1_rows=[[row["class"], row["nodes"], _spread(row)] for row in summary["f1_classes"]],
        **trust_sections(open_run(folder.path, [settings.given_model]), graph),
    )
    write_atomic(folder.path / PAGE, content)


def _read_curves(folder: RunFolder, seed: int) -> dict[str, list[float]]:
    names, *rows = folder.curves(seed)
    return {name: [float(row[k]) if row[k] else math.nan for row in rows] for k, name in enumerate(names)}


def _numbers(summary: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for words, text in score_texts(summary, digits=1).items():
        value, _, interval = text.partition(" (")  # the interval in small type, below the number
        shown[f"{words}, {interval.removesuffix(')')}" if interval else words] = value
    shown["seed" if summary["seeds"] == 1 else "seeds"] = summary["seeds"]
    if summary["method"] in BASELINES:
        shown["per fit"] = f"{summary['epoch_ms'] / 1000:.1f} s"
    else:
        shown["per training step"] = f"{summary['epoch_ms']:.1f} ms"
    return shown


def _spread(row: dict[str, Any]) -> str:
    mean, std = ("" if row[name] is None else f"{row[name]:.1f}" for name in ("mean", "std"))
    return f"{mean} ± {std}" if std else mean or "-"


def _predictions(graph: Graph, logits: Tensor) -> dict[str, Any]:
    labels, names = graph.labels.cpu(), list(graph.class_names)
    word, nodes = ("test", graph.test.cpu()) if graph.test.numel() else ("validation", graph.val.cpu())
    held = f"{nodes.numel():,} {word} nodes" if nodes.numel() else "no nodes were held out"
    found: dict[str, Any] = {"held_out": held, "classes": names, "matrix": [], "confusions": []}
    if nodes.numel() and not graph.targets.independent:  # several labels are not taken for one another
        counts = confusion(logits[nodes].argmax(1), labels[nodes], graph.num_classes)
        if len(names) <= MOST_CLASSES:
            found["matrix"] = counts.tolist()
        else:
            found["confusions"] = most_common(counts, names)
    return found


def confusion(predicted: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return the number of nodes of each class (rows) predicted as each class (columns), (C, C)."""
    return torch.bincount(labels * classes + predicted, minlength=classes * classes).view(classes, classes)


def most_common(counts: Tensor, names: Sequence[str], most: int = 15) -> list[list[Any]]:
    """Return the most common confusions: true class, predicted class, nodes. Shapes: counts (C, C)."""
    wrong = counts.clone().fill_diagonal_(0)
    values, places = wrong.flatten().sort(descending=True, stable=True)
    return [
        [names[int(place) // len(names)], Cell(names[int(place) % len(names)]), int(value)]
        for value, place in zip(values[:most], places[:most], strict=True)
        if value
    ]


def trust_sections(run: SavedRun, graph: Graph) -> dict[str, Any]:
    """Return what the page shows: a reliability diagram, doubtful labels, and nodes to label next."""
    p = run.classifier(graph).probabilities(graph)
    found: dict[str, Any] = {"reliability": None, "doubtful": [], "next_nodes": [], "suspect": SUSPECT}
    with suppress(BvatError):  # one label per class, or several per node
        held = held_out(run)
        found["reliability"] = reliability_diagram(held) if held.labels.size >= ENOUGH else None
        table = review(held).columns(graph, p)
        names = ("id", "given", "suggested", "score", "neighbours")
        found["doubtful"] = [
            (node, Cell(given), Cell(likelier), f"{score:.2f}", Cell(around))
            for node, given, likelier, score, around in zip(*map(table.get, names), strict=True)
            if score < 0.5
        ][:ROWS]
    unlabelled = int((~graph.labelled).sum())
    if unlabelled and graph.num_nodes <= LARGE and not graph.targets.independent:
        labelled = graph.labelled.nonzero()[:, 0]
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
