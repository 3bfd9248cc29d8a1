"""The page of ``bvat train``: curves, confusions, calibration and a map of the nodes."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bvat.baselines.table import BASELINES
from bvat.data.files import write_atomic
from bvat.graph import UNKNOWN, Graph
from bvat.report.html import Markup, page, provenance, section, settings_table, table, tag, tiles
from bvat.report.measures import calibration, confusion, flat_map
from bvat.report.run_charts import MOST_CLASSES, confusion_chart, node_map, reliability_diagram, sampled
from bvat.report.run_curves import training_charts
from bvat.store.folder import RunFolder
from bvat.store.results import cross_validation_text, score_texts
from bvat.training.loop import predict
from bvat.training.settings import Settings
from bvat.training.state import restore_model
from bvat.training.stopping import stopping_text
from bvat.tuning.variants import Variant

PAGE = "report.html"
ENOUGH = 100
"""Held-out nodes from which on calibration is shown: of fewer, its bins hold a handful each."""


def write_run_page(
    folder: RunFolder,
    graph: Graph,
    settings: Settings,
    seeds: Sequence[int],
    summary: dict[str, Any],
    command: str = "",
) -> None:
    """Write ``report.html`` into a finished run folder.

    Args:
        folder: the run folder.
        graph: the graph the run was trained on.
        settings: the settings of the run.
        seeds: the seeds to show; curves are means over them, predictions are those of the first.
        summary: what ``bvat train --json`` prints.
        command: the command line, shown at the end.
    """
    curves = [_read_curves(folder, seed) for seed in seeds]
    model = restore_model(settings, graph.num_features, graph.num_classes, folder.weights(seeds[0]))
    logits = predict(model.to(graph.device), graph).cpu()
    fitted = settings.method in BASELINES
    content = page(
        f"{Variant(settings.model, settings.method).title} on {graph.name}",
        tag("p", f"{graph!r}; {graph.validation}.", cls="soft"),
        _numbers(summary),
        _events(summary["events"]),
        _cross_validation(summary["cross_validation"]),
        _choice(summary.get("auto")),
        Markup("") if fitted else _curves(curves, settings, summary),
        _predictions(graph, logits, seeds),
        _f1(summary),
        section(
            "How to reproduce these numbers",
            provenance(command, summary["versions"]),
            tag("p", f"Seeds: {', '.join(map(str, seeds))}.", cls="soft"),
            settings_table({settings.method: settings.as_dict()}),
        ),
    )
    write_atomic(folder.path / PAGE, content)


def train_command(dataset: str, method: str, seeds: Sequence[int], options: Mapping[str, Any]) -> str:
    """Return the command that reproduces a run; options whose value is None are omitted."""
    parts = ["bvat", "train", dataset, "--method", method]
    parts += ["--seeds", str(len(seeds)), "--seed", str(seeds[0])]
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            parts.append(f"--{'' if value else 'no-'}{flag}")
        elif value is not None:
            parts += [f"--{flag}", str(value)]
    return shlex.join(parts)


def _read_curves(folder: RunFolder, seed: int) -> dict[str, list[float]]:
    """Return the metrics of a seed, one list per column."""
    names, *rows = folder.curves(seed)
    return {name: [float(row[k]) if row[k] else math.nan for row in rows] for k, name in enumerate(names)}


def _numbers(summary: dict[str, Any]) -> Markup:
    shown: dict[str, Any] = {}
    for words, text in score_texts(summary, digits=1).items():
        value, _, interval = text.partition(" (")  # the interval in small type, below the number
        shown[f"{words}, {interval.removesuffix(')')}" if interval else words] = value
    shown["seeds"] = summary["seeds"]
    if summary["method"] in BASELINES:
        shown["per fit"] = f"{summary['epoch_ms'] / 1000:.1f} s"
    else:
        shown["per training step"] = f"{summary['epoch_ms']:.1f} ms"
    return tiles(shown)


def _events(events: Sequence[str]) -> Markup:
    """Return what happened during training that the reader should know."""
    items = [tag("li", text) for text in events]
    return tag("ul", *items, cls="soft") if items else Markup("")


def _cross_validation(found: Mapping[str, Any] | None) -> Markup:
    """Return how the accuracy was measured."""
    return Markup("") if found is None else tag("p", cross_validation_text(found), cls="soft")


def _choice(auto: Mapping[str, Any] | None) -> Markup:
    """Return how the method was chosen, and what else was tried."""
    if auto is None:
        return Markup("")
    rows = []
    for entry in auto["tried"]:
        val = entry["val"]
        mean = f"{sum(val) / len(val):.1f}" if val else "-"
        on = f"{len(val)} of {entry['of']} {entry['unit']}, {entry['nodes']:,} nodes" if val else "-"
        rows.append([entry["title"], mean, on, tag("td", entry["outcome"].rpartition(": ")[2])])
    header = ["candidate", "validation accuracy (%)", "compared on", "outcome"]
    about = tag(
        "p", f"Validation: {auto['validation']}; budget {auto['budget_seconds']:g} seconds.", cls="soft"
    )
    return section("How the method was chosen", tag("p", auto["text"]), table(header, rows), about)


def _f1(summary: dict[str, Any]) -> Markup:
    """Return F1 class by class."""
    if not summary["f1_classes"]:
        return Markup("")
    several = summary["seeds"] > 1 and summary["f1_nodes"] != "cross-validated"
    keys = ("mean", "std") if several else ("mean",)
    rows = [
        [entry["class"], entry["nodes"], *(_number(entry[key]) for key in keys)]
        for entry in summary["f1_classes"]
    ]
    text = f"Mean and standard deviation over {summary['seeds']} seeds, on" if several else "On"
    text += f" the {summary['f1_nodes']} nodes."
    header = ["class", "nodes", "F1 (%)", "standard deviation"][: 2 + len(keys)]
    return section("F1 per class", tag("p", text, cls="soft"), table(header, rows))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _curves(curves: list[dict[str, list[float]]], settings: Settings, summary: dict[str, Any]) -> Markup:
    figures = [drawing.figure() for drawing in training_charts(curves)]
    note = f"Mean and standard deviation over {len(curves)} seeds." if len(curves) > 1 else ""
    kept = "last epoch" if settings.select == "last" else "best epoch on the validation nodes"
    return section(
        "Training",
        tag("p", f"{note} The weights are those of the {kept}. {_stopping(summary)}", cls="soft"),
        tag("div", *figures, cls="charts"),
    )


def _stopping(summary: dict[str, Any]) -> str:
    text = stopping_text(summary["stopped"], summary["seeds"])
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _predictions(graph: Graph, logits: torch.Tensor, seeds: Sequence[int]) -> Markup:
    labels = graph.labels.cpu()
    word, nodes = ("test", graph.test) if graph.test.numel() else ("validation", graph.val)
    nodes = nodes.cpu()
    held_out = f"{nodes.numel():,} {word} nodes" if nodes.numel() else "no nodes were held out"
    few = f"; calibration is not shown for fewer than {ENOUGH}" if 0 < nodes.numel() < ENOUGH else ""
    parts: list[Any] = [tag("p", f"Seed {seeds[0]}, {held_out}{few}.", cls="soft")]
    charts = []
    if nodes.numel():
        predicted = logits[nodes].argmax(1)
        counts = confusion(predicted, labels[nodes], graph.num_classes)
        parts += [tag("h3", "Confusion matrix"), confusion_chart(counts, graph.class_names)]
    if nodes.numel() >= ENOUGH:
        found = calibration(logits[nodes], labels[nodes])
        caption = f"Bars: accuracy by confidence; dashed: perfect calibration. ECE {found.error:.3f}."
        charts.append(reliability_diagram(found).figure(caption))
    known = sampled(torch.nonzero(labels != UNKNOWN).flatten())
    correct = logits[known].argmax(1) == labels[known]
    chart = node_map(flat_map(logits)[known], labels[known], correct, graph.class_names)
    caption = (
        f"{known.numel():,} of {graph.num_nodes:,} nodes, placed by their predictions: the first two "
        "principal components of the logits, normalised per node. Colours show the true classes."
    )
    if graph.num_classes > MOST_CLASSES:
        caption += f" Hover over a dot for its class, one of {graph.num_classes}."
    charts.append(chart.figure(caption))
    parts.append(tag("div", *charts, cls="charts"))
    return section("Predictions", *parts)
