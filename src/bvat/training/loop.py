"""The training loop: one seed of one method on one graph.

L = L0 + alpha * mean_u E(p_u) + beta * R_vadv                                    (Eq. 6)
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bvat.errors import SettingsError, TrainingError
from bvat.graph import Graph
from bvat.perturb.divergence import entropy
from bvat.training.callbacks import BestEpoch, Callback, EarlyStopping
from bvat.training.checkpoint import Checkpoint
from bvat.training.interrupt import finish_epoch_first
from bvat.training.settings import Settings
from bvat.training.state import TrainState, start_training

METRICS = ("epoch", "loss", "supervised", "entropy", "r_vadv", "row_norm", "nodes", "train_accuracy",
           "val_accuracy", "test_accuracy", "ms")  # fmt: skip
"""The metrics of an epoch; accuracies in percent, ``ms`` the time of the training step."""


@dataclass
class TrainedModel:
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


def train(
    graph: Graph,
    settings: Settings,
    seed: int = 0,
    *,
    callbacks: Sequence[Callback] = (),
    checkpoint: Path | None = None,
    checkpoint_every: int = 50,
    resume: bool = False,
) -> TrainedModel:
    """Train one model. The same graph, settings and seed give the same result, bit for bit, on a CPU.

    Ctrl-C takes effect at the end of the current epoch; pressed twice, at once.

    Args:
        graph: on the device to train on.
        settings: see :class:`Settings`.
        seed: of the weights, the dropout and the search.
        callbacks: hooks, see :mod:`bvat.training.callbacks`; called in this order.
        checkpoint: file for the state of training, written every ``checkpoint_every`` epochs and at Ctrl-C.
        resume: continue from ``checkpoint`` if it exists.
    """
    if (settings.select == "best" or settings.patience) and not graph.val.numel():
        raise SettingsError(
            "choosing the best epoch needs validation nodes: use select 'last' and patience 0"
        )
    state = start_training(graph, settings, seed)
    best = BestEpoch()
    stopping = [EarlyStopping(best, settings.patience)] if settings.patience else []
    hooks: list[Callback] = [best, *stopping, *callbacks]
    if checkpoint is not None:
        saving = Checkpoint(checkpoint, hooks, checkpoint_every)
        if resume and checkpoint.exists():
            saving.load(state)
        hooks.append(saving)  # last, so that it saves what the others made of the epoch
    for hook in hooks:
        hook.on_start(state)
    with finish_epoch_first(state):
        while state.epoch < settings.epochs and not state.stop and not state.interrupted:
            row = run_epoch(state, hooks)
            for hook in hooks:
                hook.on_epoch(state, row)
    for hook in hooks:
        hook.on_end(state)
    return _result(state, best)


def run_epoch(state: TrainState, callbacks: Sequence[Callback] = ()) -> dict[str, float]:
    """Make one training step, evaluate the model, and return the metrics of the epoch."""
    started = time.perf_counter()
    measured = training_step(state, callbacks)
    elapsed = time.perf_counter() - started
    state.epoch += 1
    if not math.isfinite(measured["loss"]):
        raise TrainingError(
            f"the loss is not a finite number in epoch {state.epoch}: lower lr, beta or the perturbation"
        )
    graph = state.graph
    predicted = predict(state.model, graph).argmax(1)
    row = {
        "epoch": state.epoch,
        **measured,
        "train_accuracy": accuracy(predicted, graph, graph.train),
        "val_accuracy": accuracy(predicted, graph, graph.val),
        "test_accuracy": accuracy(predicted, graph, graph.test),
        "ms": 1000 * elapsed,
    }
    state.metrics.append(row)
    return row


def training_step(state: TrainState, callbacks: Sequence[Callback] = ()) -> dict[str, float]:
    """Make one step of Adam on Eq. 6; return the loss and its parts."""
    model, graph = state.model, state.graph
    model.train()
    masks = model.draw_masks(graph, state.generator)
    projected = model.project(graph, masks)
    logits = model.propagate(graph, projected, masks)
    supervised = F.cross_entropy(logits.index_select(0, graph.train), graph.labels[graph.train])
    terms, weights = [supervised], [1.0]
    measured: dict[str, Any] = {"entropy": 0.0, "r_vadv": 0.0, "row_norm": 0.0, "nodes": 0.0}
    if state.alpha:
        uncertainty = entropy(logits)
        terms.append(uncertainty)
        weights.append(state.alpha)
        measured["entropy"] = uncertainty.detach()
    if state.regulariser is not None and state.beta:
        outcome = state.regulariser(model, graph, logits, masks, projected)
        terms.append(outcome.loss)
        weights.append(state.beta)
        state.space = outcome.space
        measured.update(r_vadv=outcome.loss.detach(), row_norm=outcome.row_norm, nodes=outcome.nodes)
    state.optimizer.zero_grad()
    # the weights enter as gradients of the terms, which saves the operations that would add the terms up
    torch.autograd.backward(terms, [supervised.new_tensor(weight) for weight in weights])
    for callback in callbacks:
        callback.on_backward(state)
    state.optimizer.step()
    loss = sum(weight * float(term.detach()) for term, weight in zip(terms, weights, strict=True))
    measured = {"loss": loss, "supervised": supervised.detach(), **measured}
    return {name: float(value) for name, value in measured.items()}


def predict(model: Any, graph: Graph) -> Tensor:
    """Return the logits of the model in evaluation mode, without gradients, shape (N, C)."""
    model.eval()
    with torch.no_grad():
        logits: Tensor = model(graph)
    return logits


def accuracy(predicted: Tensor, graph: Graph, nodes: Tensor) -> float:
    """Return the accuracy on ``nodes`` in percent; NaN without nodes. Shapes: predicted (N), nodes (m)."""
    if not nodes.numel():
        return math.nan
    right = predicted.index_select(0, nodes) == graph.labels.index_select(0, nodes)
    return 100 * int(right.sum()) / nodes.numel()


def _result(state: TrainState, best: BestEpoch) -> TrainedModel:
    def summary(row: dict[str, float]) -> dict[str, Any]:
        part = {"epoch": int(row["epoch"]), "val": row["val_accuracy"], "test": row["test_accuracy"]}
        return {name: None if math.isnan(value) else value for name, value in part.items()}

    last_row = state.metrics[-1]
    last = summary(last_row)
    best_or_last = summary(state.metrics[best.epoch - 1] if best.epoch else last_row)
    select_best = state.settings.select == "best"
    times = sorted(row["ms"] for row in state.metrics)
    return TrainedModel(
        seed=state.seed,
        weights=best.weights if select_best else dict(state.model.state_dict()),
        last=last,
        best=best_or_last,
        selected=best_or_last if select_best else last,
        metrics=state.metrics,
        space=state.space,
        epoch_ms=times[len(times) // 2],
    )
