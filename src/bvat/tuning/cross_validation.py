"""Training on all labelled nodes: cross-validation says for how many epochs, and how accurate the model is.

The folds are trained twice. The first time, the nodes of a fold are validation nodes and choose the epoch.
The model is then trained on all labelled nodes for the median of these epochs. The second time, the folds are
trained for as many epochs too, without reading their own nodes: an accuracy at an epoch that was chosen for
it would be too high.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bvat.baselines.table import BASELINES
from bvat.data.splits import folds
from bvat.errors import SettingsError
from bvat.graph import UNKNOWN, Graph, targets_of
from bvat.perturb.methods import PLAIN
from bvat.store.folder import graph_parts
from bvat.store.store import Measurement, RunSpec, RunStore
from bvat.training.metrics import temperature_of
from bvat.training.settings import Settings, labels_only
from bvat.training.state import restore_model
from bvat.training.statistics import f1_scores, macro_f1, micro_f1, wilson
from bvat.training.trained import TrainedModel, predict

FEW = 100
"""With fewer validation nodes than this, cross-validation takes the place of the hold-out."""
FOLDS = 5
"""Folds of the cross-validation; fewer if there are fewer labels."""


@dataclass(frozen=True)
class Choice:
    """What to train on and how, as it was found on validation data.

    ``graph`` is what to train on: after a cross-validation all labelled nodes are training nodes, and
    ``settings`` then have the number of epochs that the folds needed. ``method`` is the method that was asked
    for, ``estimate`` the accuracy by cross-validation, see :func:`estimate`, ``out_of_fold`` the logits that
    it comes from, see :func:`held_out_logits`; both may be None.
    """

    method: str
    settings: Settings
    graph: Graph
    estimate: dict[str, Any] | None
    out_of_fold: dict[str, Any] | None = None

    @cached_property
    def temperature(self) -> float:
        """The factor of the logits that makes probabilities fit the held-out labels; 1 without them."""
        return calibration_of(self.out_of_fold)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, from which :meth:`read` makes the same choice again."""
        return {
            "method": self.method,
            "settings": self.settings.as_dict(),
            "estimate": self.estimate,
            "out_of_fold": self.out_of_fold,
        }

    @classmethod
    def read(cls, content: dict[str, Any], graph: Graph, model: Any) -> Choice:
        """Return a stored choice; ``model`` is the one that was asked for, whatever the file names."""
        try:
            settings = Settings(**{**content["settings"], "model": model})
            found = checked_estimate(content["estimate"])
            logits = checked_logits(content.get("out_of_fold"))
            return cls(content["method"], settings, pooled(graph), found, logits)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SettingsError(
                f"the stored choice of a method is damaged ({error}): use another --out to choose again"
            ) from None

    @property
    def notes(self) -> list[str]:
        """What the user should know, a sentence each."""
        if self.estimate is None:
            note = "no class has two labelled nodes: the accuracy is unknown, and all epochs are trained"
            plain = f"; without held-out labels {self.method} can collapse, so the plain model is trained"
            return [note + (plain if self.settings.method != self.method else "")]
        if self.settings.method == self.method:
            return []
        return [
            f"the regulariser of {self.method} brought nothing on most folds, so the plain model is trained"
        ]


def checked_estimate(found: Any) -> dict[str, Any] | None:
    """Return a stored accuracy by cross-validation, or None; KeyError or TypeError if it is damaged."""
    if found is None:
        return None
    if not isinstance(found, dict):
        raise TypeError("estimate")
    for name in ("folds", "nodes", "correct", "accuracy", "low", "high", "macro_f1"):
        if type(found[name]) not in (int, float) or found[name] < 0:
            raise TypeError(name)
    if not 0 <= found["correct"] <= found["nodes"] or max(found["accuracy"], found["macro_f1"]) > 100:
        raise TypeError("accuracy")
    if not all({"class", "nodes", "f1"} <= entry.keys() for entry in found["f1"]):
        raise TypeError("f1")
    return found


def estimate_of(results: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the out-of-fold accuracy that the first seed of a run with ``auto`` found, or None."""
    found = results[0].get("fit") if results else None
    return checked_estimate(found.get("estimate")) if isinstance(found, dict) else None


def lacks_validation(graph: Graph) -> bool:
    """Return whether cross-validation has to take the place of validation nodes; parts have none of it."""
    return not graph.val.numel() and len(graph.train) > 1 and not graph_parts(graph)


def blind(graph: Graph) -> Graph:
    """Return the graph without what a search must not know: test nodes, and the labels of other nodes."""
    labels = torch.full_like(graph.labels, UNKNOWN)
    for nodes in (graph.train, graph.val):
        labels[nodes] = graph.labels[nodes]
    return dataclasses.replace(graph, labels=labels, test=graph.test[:0])


def pooled(graph: Graph) -> Graph:
    """Return the graph with its validation nodes among the training nodes."""
    train = torch.cat([graph.train, graph.val]).sort().values
    tested = f"; {len(graph.test)} others are for testing" if graph.test.numel() else ""
    said = f"none: all {train.numel()} labelled nodes are training nodes{tested}"
    return dataclasses.replace(graph, train=train, val=graph.val[:0], validation=said)


def for_ensemble(graph: Graph) -> Graph:
    """Return the graph that ``auto`` is fitted to: validation nodes that are too few train instead."""
    return graph if len(graph.val) >= FEW else pooled(graph)


def can_cross_validate(graph: Graph) -> bool:
    return _usable(graph) > 1


def labelled_folds(graph: Graph) -> list[Graph]:
    """Return the graph once per fold of its training and validation nodes, without any test label."""
    if not can_cross_validate(graph):
        raise SettingsError(f"{graph.name} has too few labels for cross-validation: label more nodes")
    return folds(blind(graph), min(FOLDS, _usable(graph)))


def _usable(graph: Graph) -> int:
    """Return how many labelled nodes can be in a fold: those whose class has another one."""
    labels = graph.labels[torch.cat([graph.train, graph.val])]
    sizes = torch.bincount(graph.targets.strata(labels))
    return int(sizes[sizes > 1].sum())


def cross_validate(graph: Graph, settings: Settings, *, jobs: int = 1, console: Any = None) -> Choice:
    """Find out how to train a method on all labelled nodes, and how accurate it then is."""
    if not can_cross_validate(graph):
        return Choice(settings.method, _plain(settings), pooled(graph), None)
    parts, method = labelled_folds(graph), settings.method
    with TemporaryDirectory() as temporary:
        if chooses_epoch(settings):
            store = RunStore.open(Path(temporary), {str(k): part for k, part in enumerate(parts)})
            specs = [RunSpec(name, settings, 0) for name in store.graphs]
            store.run_all(specs, jobs, console)
            settings = refitted(settings, [result["phases"] for result in store.results(specs)])
        found, logits = estimate(graph, settings, parts, Path(temporary), jobs, console)
    return Choice(method, settings, pooled(graph), found, logits)


def chooses_epoch(settings: Settings) -> bool:
    """Return whether training with these settings reads the validation nodes."""
    fixed = settings.select == "last" and not settings.patience and not settings.pretrain
    return settings.method not in BASELINES and not fixed


def fixed_epochs(settings: Settings, **more: Any) -> Settings:
    """Return the settings for training without validation nodes: all epochs, and the last one is kept."""
    return settings.replace(**{"select": "last", "patience": 0, "guard": False, "margin": 0.0, **more})


def without_validation(settings: Settings) -> Settings:
    """Return the settings for labels alone: a plain model is trained for as long as its first phase."""
    if not chooses_epoch(settings):
        return settings
    changes = labels_only(settings)
    if settings.method == PLAIN:
        changes |= {"pretrain": 0, "epochs": settings.pretrain or settings.epochs}
    return fixed_epochs(settings, guard=settings.guard, **changes)


def _plain(settings: Settings) -> Settings:
    """Return the settings of the plain model: without held-out labels no other is known not to collapse."""
    return without_validation(settings if settings.method in BASELINES else settings.replace(method=PLAIN))


def refitted(settings: Settings, phases: Sequence[Mapping[str, int]]) -> Settings:
    """Return the settings for training without validation nodes, with the median of the folds' epochs.

    If most folds kept no epoch with the regulariser, these are the settings of the plain model.
    """
    first, second = (round(median(lengths[name] for lengths in phases)) for name in ("first", "second"))
    if not settings.pretrain:
        return fixed_epochs(settings, epochs=max(1, second))
    first = max(1, first)
    if not second or settings.method == PLAIN:
        plain: dict[str, Any] = {"method": PLAIN, "pretrain": 0, "epochs": first}
        return fixed_epochs(settings, **plain)
    return fixed_epochs(settings, pretrain=first, epochs=first + second)


def estimate(
    graph: Graph, settings: Settings, parts: Sequence[Graph], work: Path, jobs: int = 1, console: Any = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return how accurate a model with fixed settings is on the nodes of folds that it was not trained on.

    Returns:
        The number of ``folds``, with what :func:`scores_of` returns for the nodes of all folds together; and
        :func:`held_out_logits` of these nodes.
    """
    hidden = {
        f"held-out-{k}": dataclasses.replace(part, val=part.val[:0], test=part.val)
        for k, part in enumerate(parts)
    }
    store = RunStore.open(work, hidden)
    specs = [RunSpec(name, settings, 0, HELD_OUT) for name in hidden]
    store.run_all(specs, jobs, console)
    found = store.results(specs)
    logits = torch.tensor([row for result in found for row in result["held_out"]])
    sizes = torch.tensor([result["sizes"] for result in found]).sum(0)
    nodes = torch.cat([part.test for part in hidden.values()]).cpu()
    labels = graph.labels.cpu()[nodes]
    scores = out_of_fold_scores(graph.targets.predicted(logits), labels, sizes, len(parts), graph.class_names)
    return scores, held_out_logits(nodes, labels, logits)


def _held_out(graph: Graph, settings: Settings, trained: TrainedModel) -> dict[str, Any]:
    model = restore_model(settings, graph.num_features, graph.num_classes, trained.weights)
    logits = predict(model, graph)
    strata = graph.targets.strata(graph.targets.predicted(logits))
    sizes = torch.bincount(strata, minlength=graph.num_classes)
    return {"held_out": logits[graph.test].tolist(), "sizes": sizes.tolist()}


HELD_OUT = Measurement("held-out", _held_out, parameters=dict)


def held_out_logits(nodes: Tensor, labels: Tensor, logits: Tensor) -> dict[str, Any]:
    """Return what is known of nodes from models that had not seen their labels, as plain values.

    Shapes: nodes (m), labels (m) or (m, C), logits (m, C).
    """
    rows = [[round(value, 4) for value in row] for row in logits.tolist()]
    return {"nodes": nodes.tolist(), "labels": labels.tolist(), "logits": rows}


def checked_logits(found: Any) -> dict[str, Any] | None:
    """Return stored :func:`held_out_logits`, or None; KeyError, TypeError or ValueError if damaged."""
    if found is None:
        return None
    nodes, labels = (torch.tensor(found[name], dtype=torch.int64) for name in ("nodes", "labels"))
    logits = torch.tensor(found["logits"], dtype=torch.float64)
    if nodes.ndim != 1 or logits.ndim != 2 or len(logits) != len(nodes):
        raise ValueError("out_of_fold")
    if bool((nodes < 0).any()) or not targets_of(labels).fit(labels, logits):
        raise ValueError("out_of_fold")
    return dict(found)


def calibration_of(found: Mapping[str, Any] | None) -> float:
    """Return the factor of the logits that fits held-out labels best; 1 without them."""
    if not found or not found["nodes"]:
        return 1.0
    logits, labels = np.array(found["logits"]), np.array(found["labels"])
    return temperature_of(*targets_of(labels).decisions(np.zeros_like(logits), logits, labels))


def out_of_fold_scores(
    predicted: Tensor, labels: Tensor, sizes: Tensor, folds: int, class_names: Sequence[str]
) -> dict[str, Any]:
    """Return :func:`scores_of` out-of-fold predictions and the number of folds; what is sure counts less.

    Classes with many nodes are where most mistakes are made, and labels are often drawn per class: n_c labels
    of a class with the share q_c of all nodes are worth ``1 / sum_c q_c^2 / n_c`` labels that are drawn from
    all nodes (Kish, 1965). And models of folds have learned from fewer labels: that counts as
    ``1 - 1 / folds``.

    A node with several labels counts for its rarest one.

    Shapes: predicted and labels int64 (m) or (m, C); sizes (C), how many of all nodes are predicted to be of
    a class.
    """
    counts = torch.bincount(targets_of(labels).strata(labels), minlength=len(class_names)).double()
    seen = counts > 0
    shares = sizes[seen].double()
    shares = shares / shares.sum() if shares.sum() > 0 else counts[seen] / counts.sum()
    effective = float((1 - 1 / folds) / (shares.square() / counts[seen]).sum())
    return {"folds": folds, **scores_of(predicted, labels, class_names, effective)}


def scores_of(
    predicted: Tensor, labels: Tensor, class_names: Sequence[str], effective: float | None = None
) -> dict[str, Any]:
    """Return how good predictions are, as plain values; the interval is that of ``effective`` nodes.

    Returns:
        The number of ``nodes`` and of ``correct`` ones, ``accuracy`` with its 95 % interval (``low``,
        ``high``) and ``macro_f1`` in percent, and ``f1`` of each class.

    With several labels per node a node is correct if all of them are, and there is ``micro_f1`` too.

    Shapes: predicted and labels int64 (m) or (m, C), m > 0, labels known.
    """
    targets = targets_of(labels)
    count, correct = len(labels), int(targets.right(predicted, labels).sum())
    low, high = wilson(100 * correct / count, count if effective is None else effective)
    scores = f1_scores(predicted, labels, len(class_names))
    sizes = targets.sizes(labels, len(class_names)).tolist()
    mean = macro_f1(scores)
    return {
        "nodes": count,
        "correct": correct,
        "accuracy": 100 * correct / count,
        "low": low,
        "high": high,
        "macro_f1": 100.0 if mean is None else mean,  # no label holds, and none is predicted
        **({"micro_f1": micro_f1(predicted, labels)} if targets.independent else {}),
        "f1": [
            {"class": name, "nodes": size, "f1": score}
            for name, size, score in zip(class_names, sizes, scores, strict=True)
        ],
    }
