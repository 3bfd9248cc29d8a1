"""A trained model with its metrics, its predictions, and the part of the graph that an epoch is scored on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bvat.engine.sparse import SparseMatrix
from bvat.engine.tensor import TensorEngine
from bvat.graph import Graph
from bvat.graph.html import html_table
from bvat.graph.inputs import ReceptiveFields
from bvat.graph.targets import OneClass, targets_of
from bvat.training.plottable import Plottable
from bvat.training.statistics import accuracy_text, micro_f1

MEASURED = ("supervised", "entropy", "r_vadv", "row_norm", "nodes")
"""What the terms of the loss measure in a step."""
METRICS = ("epoch", "loss", *MEASURED, "train_accuracy", "val_accuracy", "test_accuracy", "val_micro_f1",
           "ms", "val_loss", "largest_class")  # fmt: skip
"""The metrics of an epoch; accuracies in percent, ``ms`` the time of the training step, ``val_loss`` the
loss on the validation nodes, ``largest_class`` the share of nodes predicted as the commonest class; NaN where
no setting needs them. ``val_micro_f1`` is there if nodes have several labels: of one class, it is the
accuracy."""


@dataclass
class TrainedModel(Plottable):
    """The result of training one seed: the selected weights and the metrics of every epoch.

    ``last`` and ``best`` hold epoch, val and test accuracy (percent; None without such nodes) of the last
    epoch and of the epoch with the best validation accuracy; ``selected`` is the one whose ``weights`` are
    kept.
    """

    seed: int
    weights: dict[str, Tensor]
    last: dict[str, Any]
    best: dict[str, Any]
    selected: dict[str, Any]
    metrics: list[dict[str, float]]
    space: str
    epoch_ms: float
    events: list[str] = field(default_factory=list)
    """What happened during training that the user should know, one sentence each."""
    phases: dict[str, int] = field(default_factory=dict)
    """Epochs of the selected weights without (``first``) and with the regulariser (``second``)."""
    f1: dict[str, Any] = field(default_factory=dict)
    """Macro F1 and F1 of each class in percent, on the validation (``val``) and the test nodes (``test``),
    and ``micro`` F1 if nodes have several labels."""
    nodes: dict[str, int] = field(default_factory=dict)
    """The number of validation (``val``) and test nodes (``test``)."""
    stopped: str = ""
    """At which epoch training stopped early and why; empty if it ran to its end."""
    fit: dict[str, Any] = field(default_factory=dict)
    """Of a baseline: what was ``chosen`` on the validation nodes, and the percentage of all nodes
    (``unscored``) and of the test nodes (``unscored_test``) that got the most common training class because
    nothing is known of them."""

    def _repr_html_(self) -> str:
        scores = {
            f"{word} accuracy": accuracy_text(self.selected[name], self.nodes.get(name, 0))
            for name, word in (("val", "validation"), ("test", "test"))
            if self.selected[name] is not None
        }
        scores |= {
            f"test {name} F1": f"{value:.2f} %"
            for name in ("micro", "macro")
            if (value := self.f1.get("test", {}).get(name)) is not None
        }
        return html_table(
            f"Trained model, seed {self.seed}",
            {
                **scores,
                "epochs": f"{len(self.metrics)}, weights of epoch {self.selected['epoch']}",
                "early stopping": self.stopped or "no",
                "time per epoch": f"{self.epoch_ms:.2f} ms",
                "perturbation space": self.space,
            },
        )


def predict(model: Any, graph: Graph) -> Tensor:
    """Return the logits of the model in evaluation mode, without gradients, shape (N, C)."""
    model.eval()
    with torch.no_grad():
        logits: list[Tensor] = [model(piece) for piece in graph.pieces()]
    return logits[0] if len(logits) == 1 else torch.cat(logits)


def held_out(graph: Graph) -> dict[str, int]:
    """Return the numbers of validation and test nodes, over all ranks."""
    return {name: graph.engine.total(len(getattr(graph, name))) for name in ("val", "test")}


def accuracy(scores: Tensor, graph: Graph | Scored, nodes: Tensor) -> float:
    """Return the accuracy on ``nodes`` in percent; NaN without nodes. Shapes: scores (N, C), nodes (m)."""
    right = graph.targets.right(graph.targets.predicted(scores), graph.labels)
    return share_right(right, graph, nodes)


def share_right(right: Tensor, graph: Graph | Scored, nodes: Tensor) -> float:
    """Return the share of ``nodes`` with the right class, or all labels right, in percent; NaN without nodes.

    Shapes: right bool (N), nodes (m).
    """
    total = graph.engine.total(nodes.numel())
    if not total:
        return math.nan
    return 100 * graph.engine.total(int(right.index_select(0, nodes).sum())) / total


def split_micro_f1(predicted: Tensor, graph: Graph | Scored, nodes: Tensor) -> float:
    """Return micro F1 of several labels on ``nodes`` in percent; NaN without nodes, or for one class."""
    if not graph.targets.independent or not graph.engine.total(nodes.numel()):
        return math.nan
    return micro_f1(predicted[nodes], graph.labels[nodes], graph.engine)


def validation_score(row: Mapping[str, float]) -> tuple[str, float]:
    """Return what the epoch is judged by on the validation nodes, in percent, and its name."""
    f1 = row.get("val_micro_f1", math.nan)
    return ("accuracy", row["val_accuracy"]) if math.isnan(f1) else ("micro F1", f1)


def reached(row: Mapping[str, float]) -> dict[str, Any]:
    """Return epoch, validation and test accuracy of a row of metrics; None without such nodes."""
    found = {"epoch": int(row["epoch"]), "val": row["val_accuracy"], "test": row["test_accuracy"]}
    return {name: None if math.isnan(value) else value for name, value in found.items()}


FEW = 0.5
"""Receptive fields are used if at most this share of the nodes has labels, and if dense features of at most
this share have to be copied."""


@dataclass(frozen=True, eq=False)
class Scored:
    """The inputs of a pass, and which rows of its logits belong to the nodes of each split.

    Shapes: labels int64 (rows) or (rows, C), train, val and test int64 (number of their nodes).
    """

    inputs: Any
    labels: Tensor
    train: Tensor
    val: Tensor
    test: Tensor

    @property
    def engine(self) -> TensorEngine:
        engine: TensorEngine = self.inputs.engine
        return engine

    @property
    def targets(self) -> OneClass:
        return targets_of(self.labels)


def scored_part(graph: Graph, model: Any, *, every: bool) -> Scored:
    """Return the receptive fields of the labelled nodes if these are few, else the whole graph.

    The logits are the same. On NELL, where 2 % of the nodes have labels, they take a fifth of the time.

    Args:
        graph: to train on.
        model: to evaluate; one that does not work layer by layer needs the whole graph.
        every: whether the predictions of all nodes are needed.
    """
    splits = (graph.train, graph.val, graph.test)
    whole = Scored(graph, graph.labels, *splits)
    if every or type(graph) is not Graph or getattr(model, "perturbed_on", "whole") != "fields":
        return whole
    chosen = torch.cat(splits)  # they do not overlap
    if chosen.numel() > FEW * graph.num_nodes:
        return whole
    fields = ReceptiveFields.around(graph, chosen, model.depth)
    if not isinstance(graph.features, SparseMatrix) and fields.nodes.numel() > FEW * graph.num_nodes:
        return whole
    rows = torch.split(torch.arange(len(chosen), device=chosen.device), [len(nodes) for nodes in splits])
    return Scored(fields, graph.labels.index_select(0, chosen), *rows)
