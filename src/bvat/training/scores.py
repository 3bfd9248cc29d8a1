"""How good predictions are class by class: F1, which accuracy hides where classes are unbalanced."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bvat.engine.compiled.engine import DEFAULT_ENGINE
from bvat.engine.tensor import TensorEngine
from bvat.graph import UNKNOWN, Graph
from bvat.training.statistics import summarize


def f1_scores(
    predicted: Tensor, labels: Tensor, classes: int, engine: TensorEngine = DEFAULT_ENGINE
) -> list[float | None]:
    """Return F1 = 2 TP / (2 TP + FP + FN) of each class in percent; None for a class that never occurs.

    A class occurs if a label or a prediction names it.

    Shapes: predicted and labels int64 (m), labels known.

    Example:
        >>> f1_scores(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 1]), 3)
        [66.66..., 80.0, None]
    """
    hits = torch.bincount(labels[predicted == labels], minlength=classes)
    counts = torch.bincount(labels, minlength=classes) + torch.bincount(predicted, minlength=classes)
    pairs = zip(engine.counts(hits).tolist(), engine.counts(counts).tolist(), strict=True)
    return [200 * hit / count if count else None for hit, count in pairs]


def macro_f1(scores: Sequence[float | None]) -> float | None:
    """Return the mean F1 of the classes that occur, in percent; None if none does."""
    known = [score for score in scores if score is not None]
    return math.fsum(known) / len(known) if known else None


def split_scores(predicted: Tensor, graph: Graph) -> dict[str, Any]:
    """Return macro F1 and F1 of each class on the validation and the test nodes, in percent.

    Shapes: predicted (N).
    """
    found = {}
    for name, nodes in (("val", graph.val), ("test", graph.test)):
        known = nodes[graph.labels[nodes] != UNKNOWN]
        scores = f1_scores(predicted[known], graph.labels[known], graph.num_classes, graph.engine)
        found[name] = {"macro": macro_f1(scores), "classes": scores}
    return found


def summarize_f1(
    graph: Graph, results: Sequence[Mapping[str, Any]], cross_validation: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return what a summary over seeds says about F1: on test nodes, else validation nodes, else on folds."""
    summary: dict[str, Any] = {}
    for name in ("val", "test"):
        macros = [result.get("f1", {}).get(name, {}).get("macro") for result in results]
        summary[f"{name}_macro_f1"] = summarize(macros)
    part = next((name for name in ("test", "val") if summary[f"{name}_macro_f1"]["mean"] is not None), None)
    if part is None:
        folds = [] if cross_validation is None else cross_validation["f1"]
        classes = [{"class": e["class"], "nodes": e["nodes"], "mean": e["f1"], "std": None} for e in folds]
        return {**summary, "f1_nodes": "cross-validated", "f1_classes": classes}
    labels = graph.labels[getattr(graph, part)]
    counts = torch.bincount(labels[labels != UNKNOWN], minlength=graph.num_classes)
    seeds = [result["f1"][part]["classes"] for result in results if "f1" in result]
    classes, sizes = [], graph.engine.counts(counts).tolist()
    for k, name in enumerate(graph.class_names):
        values = [scores[k] for scores in seeds if scores[k] is not None]
        found = summarize(values)
        classes.append({"class": name, "nodes": sizes[k], "mean": found["mean"], "std": found["std"]})
    return {**summary, "f1_nodes": "test" if part == "test" else "validation", "f1_classes": classes}


def balanced_weights(labels: Tensor, classes: int, engine: TensorEngine = DEFAULT_ENGINE) -> Tensor:
    """Return the weight n / (k * n_c) of each class: n labels, k classes with a label, n_c labels of class c.

    This is what scikit-learn calls "balanced"; a class without a label has weight 0.

    Shapes: labels int64 (n); result float64 (C).
    """
    counts = engine.counts(torch.bincount(labels, minlength=classes)).double()
    present = counts > 0
    return torch.where(present, engine.total(labels.numel()) / (present.sum() * counts.clamp_min(1)), 0)
