"""Means, deviations and intervals over seeds; and F1, which accuracy hides where classes are unbalanced."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from bvat.engine.cpu import DEFAULT_ENGINE
from bvat.engine.tensor import TensorEngine
from bvat.graph import Graph, targets_of


@dataclass(frozen=True)
class Sample:
    """Statistics of n seeds: mean, sample standard deviation, and the 95 % interval of the mean."""

    n: int
    mean: float
    std: float
    low: float
    high: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the sample standard deviation, which is 0 for a single value."""
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else 0.0


def summarize(values: Sequence[float | None]) -> dict[str, Any]:
    """Return mean, standard deviation and the values as plain data.

    Without values the mean is None; a single value has no standard deviation.
    """
    known = [value for value in values if value is not None]
    mean, std = mean_and_std(known) if known else (None, None)
    return {"mean": mean, "std": std if len(known) > 1 else None, "values": list(values)}


def sample(values: Sequence[float], confidence: float = 0.95) -> Sample:
    """Describe values by Student's t distribution; the interval of a single value has no width."""
    from scipy.special import stdtrit  # what scipy.stats.t.ppf calls, without importing all of scipy.stats

    n, (mean, std) = len(values), mean_and_std(values)
    half = float(stdtrit(n - 1, (1 + confidence) / 2)) * std / math.sqrt(n) if n > 1 else 0.0
    return Sample(n, mean, std, mean - half, mean + half)


def clear_sign(difference: Mapping[str, Any]) -> int:
    """Return 1 or -1 if the interval of a difference is above or below zero, else 0."""
    if difference["n"] < 2:
        return 0
    return int(difference["low"] > 0) - int(difference["high"] < 0)


FEW_NODES = 1000
"""An accuracy on fewer nodes than this is shown with its interval."""


def wilson(accuracy: float, nodes: float, z: float = 1.959964) -> tuple[float, float]:
    """Return the 95 % interval of an accuracy in percent that was measured on some nodes (Wilson, 1927).

    It says how much the accuracy on further nodes of the same kind may differ; unlike ``± z sigma`` it keeps
    within 0 and 100 and has a width at 100 % too.

    Example:
        >>> tuple(round(bound, 1) for bound in wilson(60.0, 20))
        (38.7, 78.1)
    """
    p, z2 = accuracy / 100, z * z
    centre = (p + z2 / (2 * nodes)) / (1 + z2 / nodes)
    half = z / (1 + z2 / nodes) * math.sqrt(p * (1 - p) / nodes + z2 / (4 * nodes * nodes))
    return max(0.0, 100 * (centre - half)), min(100.0, 100 * (centre + half))


def accuracy_summary(values: Sequence[float | None], nodes: int) -> dict[str, Any] | None:
    """Return :func:`summarize` of accuracies on some nodes with the interval of the mean; None without."""
    found = summarize(values)
    if not nodes or found["mean"] is None:
        return None
    low, high = wilson(found["mean"], nodes)
    return {**found, "nodes": nodes, "low": low, "high": high}


def accuracy_text(
    mean: float,
    nodes: int,
    std: float | None = None,
    digits: int = 2,
    interval: tuple[float, float] | None = None,
) -> str:
    """Return an accuracy in words: with ``± std`` over several seeds, with its interval on few nodes.

    That is Wilson's unless another one is given.

    Example:
        >>> accuracy_text(60.0, 20)
        '60.00 % (95 % interval 38.7 to 78.1 on 20 nodes)'
        >>> accuracy_text(81.5, 1000, 0.7)
        '81.50 ± 0.70 %'
    """
    text = f"{mean:.{digits}f} %" if std is None else f"{mean:.{digits}f} ± {std:.{digits}f} %"
    if not 0 < nodes < FEW_NODES:
        return text
    low, high = interval or wilson(mean, nodes)
    return f"{text} (95 % interval {low:.1f} to {high:.1f} on {nodes} nodes)"


def f1_scores(
    predicted: Tensor, labels: Tensor, classes: int, engine: TensorEngine = DEFAULT_ENGINE
) -> list[float | None]:
    """Return F1 = 2 TP / (2 TP + FP + FN) of each class in percent; None for a class that never occurs.

    A class occurs if a label or a prediction names it.

    Shapes: predicted and labels int64 (m) or (m, C), labels known.

    Example:
        >>> f1_scores(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 1]), 3)
        [66.66..., 80.0, None]
    """
    targets = targets_of(labels)
    hits = targets.hits(predicted, labels, classes)
    counts = targets.sizes(labels, classes) + targets.sizes(predicted, classes)
    pairs = zip(engine.counts(hits).tolist(), engine.counts(counts).tolist(), strict=True)
    return [200 * hit / count if count else None for hit, count in pairs]


def micro_f1(predicted: Tensor, labels: Tensor, engine: TensorEngine = DEFAULT_ENGINE) -> float:
    """Return F1 of all labels of all nodes together in percent; 100 if none holds and none is predicted.

    Shapes: predicted and labels int64 (m, C), labels known.

    Example:
        >>> micro_f1(torch.tensor([[1, 0], [1, 1]]), torch.tensor([[1, 0], [0, 1]]))
        80.0
    """
    hits, total = (predicted * labels).sum(), predicted.sum() + labels.sum()
    both, count = engine.counts(torch.stack([hits, total])).tolist()
    return 200 * both / count if count else 100.0


def macro_f1(scores: Sequence[float | None]) -> float | None:
    """Return the mean F1 of the classes that occur, in percent; None if none does."""
    known = [score for score in scores if score is not None]
    return math.fsum(known) / len(known) if known else None


def split_scores(predicted: Tensor, graph: Graph) -> dict[str, Any]:
    """Return macro F1 and F1 of each class on the validation and the test nodes, in percent.

    With several labels per node also ``micro`` F1; None without nodes. Shapes: predicted (N) or (N, C).
    """
    found: dict[str, Any] = {}
    for name, nodes in (("val", graph.val), ("test", graph.test)):
        known = nodes[graph.labelled[nodes]]
        labels = graph.labels[known]
        scores = f1_scores(predicted[known], labels, graph.num_classes, graph.engine)
        found[name] = {"macro": macro_f1(scores), "classes": scores}
        if graph.targets.independent:
            micro = micro_f1(predicted[known], labels, graph.engine)
            found[name]["micro"] = micro if graph.engine.total(len(known)) else None
    return found


def summarize_f1(
    graph: Graph, results: Sequence[Mapping[str, Any]], cross_validation: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return what a summary over seeds says about F1: on test nodes, else validation nodes, else on folds."""
    summary: dict[str, Any] = {}
    means = ("macro", "micro") if graph.targets.independent else ("macro",)
    for name, mean in product(("val", "test"), means):
        values = [result.get("f1", {}).get(name, {}).get(mean) for result in results]
        summary[f"{name}_{mean}_f1"] = summarize(values)
    part = next((name for name in ("test", "val") if summary[f"{name}_macro_f1"]["mean"] is not None), None)
    if part is None:
        folds = [] if cross_validation is None else cross_validation["f1"]
        classes = [{"class": e["class"], "nodes": e["nodes"], "mean": e["f1"], "std": None} for e in folds]
        return {**summary, "f1_nodes": "cross-validated", "f1_classes": classes}
    nodes = getattr(graph, part)
    counts = graph.targets.sizes(graph.labels[nodes[graph.labelled[nodes]]], graph.num_classes)
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
