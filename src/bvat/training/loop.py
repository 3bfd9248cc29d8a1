"""The training loop: one seed of one method on one graph.

L = L0 + alpha * mean_u E(p_u) + beta * R_vadv                                    (Eq. 6)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bvat.errors import SettingsError, TrainingError
from bvat.graph import Graph
from bvat.perturb.divergence import entropy
from bvat.training.build import build_model, build_regulariser
from bvat.training.checkpoint import load_checkpoint, save_checkpoint
from bvat.training.optimizer import Adam
from bvat.training.settings import Settings

METRICS = ("epoch", "loss", "supervised", "entropy", "r_vadv", "row_norm", "nodes", "train_accuracy",
           "val_accuracy", "test_accuracy", "ms")  # fmt: skip
"""What is measured in each epoch; accuracies in percent, ``ms`` the time of the training step."""


@dataclass
class TrainedModel:
    """What one seed gives: the weights that were selected and everything measured on the way.

    ``last`` and ``best`` hold epoch, val and test accuracy (percent; None without such nodes) of the last
    epoch and of the epoch with the best validation accuracy; ``weights`` are those of the selected one.
    """

    seed: int
    weights: dict[str, Tensor]
    last: dict[str, Any]
    best: dict[str, Any]
    selected: dict[str, Any]
    metrics: list[dict[str, float]]
    space: str
    epoch_ms: float


@dataclass
class TrainState:
    """All that changes during training, and all that a checkpoint holds."""

    model: torch.nn.Module
    optimizer: Adam
    regulariser: Any
    generator: torch.Generator
    epoch: int = 0
    metrics: list[dict[str, float]] = field(default_factory=list)
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    best_epoch: int = 0
    space: str = "none"


def train(
    graph: Graph,
    settings: Settings,
    seed: int = 0,
    *,
    checkpoint: Path | None = None,
    checkpoint_every: int = 50,
    resume: bool = False,
    on_epoch: Callable[[dict[str, float]], None] | None = None,
) -> TrainedModel:
    """Train one model. The same graph, settings and seed give the same result, bit for bit, on a CPU.

    Args:
        graph: on the device to train on.
        settings: see :class:`Settings`.
        seed: of the weights, the dropout and the search.
        checkpoint: a file to write the state to, every ``checkpoint_every`` epochs and at Ctrl-C.
        resume: go on from ``checkpoint`` if it is there.
        on_epoch: called with the metrics of each epoch.
    """
    if (settings.select == "best" or settings.patience) and not graph.val.numel():
        raise SettingsError(
            "choosing the best epoch needs validation nodes: use select 'last' and patience 0"
        )
    # a stream of its own for dropout and search, so that it does not repeat the numbers of the weights
    generator = torch.Generator(graph.device).manual_seed(seed + 2**32)
    model = build_model(
        settings, graph.num_features, graph.num_classes, torch.Generator().manual_seed(seed)
    ).to(graph.device)
    state = TrainState(
        model=model,
        optimizer=make_optimizer(model, settings),
        regulariser=build_regulariser(settings, generator),
        generator=generator,
    )
    if resume and checkpoint is not None and checkpoint.exists():
        load_checkpoint(checkpoint, state, graph, settings, seed)
    try:
        while state.epoch < settings.epochs and not _out_of_patience(state, settings):
            row = run_epoch(state, graph, settings)
            if on_epoch is not None:
                on_epoch(row)
            if checkpoint is not None and state.epoch % checkpoint_every == 0:
                save_checkpoint(checkpoint, state, graph, settings, seed)
    except KeyboardInterrupt:
        if checkpoint is not None:
            save_checkpoint(checkpoint, state, graph, settings, seed)
        raise
    return _result(state, graph, settings, seed)


def make_optimizer(model: Any, settings: Settings) -> Adam:
    """Adam, with L2 on the first layer only, as in GCN's own code."""
    first = model.projection()
    rest = [p for p in model.parameters() if p is not first]
    return Adam([([first], settings.weight_decay), (rest, 0.0)], lr=settings.lr)


def run_epoch(state: TrainState, graph: Graph, settings: Settings) -> dict[str, float]:
    """Make one training step, measure, and return the metrics of the epoch."""
    started = time.perf_counter()
    measured = training_step(state, graph, settings)
    elapsed = time.perf_counter() - started
    state.epoch += 1
    if not math.isfinite(measured["loss"]):
        raise TrainingError(
            f"the loss is not a finite number in epoch {state.epoch}: lower lr, beta or the perturbation"
        )
    predicted = predict(state.model, graph).argmax(1)
    row = {
        "epoch": state.epoch,
        **measured,
        "train_accuracy": accuracy(predicted, graph, graph.train),
        "val_accuracy": accuracy(predicted, graph, graph.val),
        "test_accuracy": accuracy(predicted, graph, graph.test),
        "ms": 1000 * elapsed,
    }
    if graph.val.numel() and (not state.metrics or row["val_accuracy"] > best_row(state)["val_accuracy"]):
        state.best_epoch = state.epoch
        state.best_weights = {name: tensor.clone() for name, tensor in state.model.state_dict().items()}
    state.metrics.append(row)
    return row


def training_step(state: TrainState, graph: Graph, settings: Settings) -> dict[str, float]:
    """One step of Adam on Eq. 6; returns the loss and its parts."""
    model: Any = state.model
    model.train()
    masks = model.draw_masks(graph, state.generator)
    projected = model.project(graph, masks)
    logits = model.propagate(graph, projected, masks)
    supervised = F.cross_entropy(logits.index_select(0, graph.train), graph.labels[graph.train])
    terms, weights = [supervised], [1.0]
    measured: dict[str, Any] = {"entropy": 0.0, "r_vadv": 0.0, "row_norm": 0.0, "nodes": 0.0}
    if settings.alpha:
        uncertainty = entropy(logits)
        terms.append(uncertainty)
        weights.append(settings.alpha)
        measured["entropy"] = uncertainty.detach()
    if state.regulariser is not None and settings.beta:
        outcome = state.regulariser(model, graph, logits, masks, projected)
        terms.append(outcome.loss)
        weights.append(settings.beta)
        state.space = outcome.space
        measured.update(r_vadv=outcome.loss.detach(), row_norm=outcome.row_norm, nodes=outcome.nodes)
    state.optimizer.zero_grad()
    # the weights go in as gradients of the terms: no operations, and no gradients of theirs, to add them up
    torch.autograd.backward(terms, [supervised.new_tensor(weight) for weight in weights])
    state.optimizer.step()
    loss = sum(weight * float(term.detach()) for term, weight in zip(terms, weights, strict=True))
    measured = {"loss": loss, "supervised": supervised.detach(), **measured}
    return {name: float(value) for name, value in measured.items()}


def predict(model: Any, graph: Graph) -> Tensor:
    """Return the logits without dropout and without gradient, shape (N, C)."""
    model.eval()
    with torch.no_grad():
        logits: Tensor = model(graph)
    return logits


def accuracy(predicted: Tensor, graph: Graph, nodes: Tensor) -> float:
    """Percent of ``nodes`` predicted right; NaN without nodes. Shapes: predicted (N), nodes (m)."""
    if not nodes.numel():
        return math.nan
    right = predicted.index_select(0, nodes) == graph.labels.index_select(0, nodes)
    return 100 * int(right.sum()) / nodes.numel()


def best_row(state: TrainState) -> dict[str, float]:
    """Return the metrics of the best validation epoch (of the last one without validation nodes)."""
    return state.metrics[state.best_epoch - 1]


def _out_of_patience(state: TrainState, settings: Settings) -> bool:
    return (
        bool(settings.patience) and bool(state.epoch) and state.epoch - state.best_epoch >= settings.patience
    )


def _result(state: TrainState, graph: Graph, settings: Settings, seed: int) -> TrainedModel:
    def summary(row: dict[str, float]) -> dict[str, Any]:
        part = {"epoch": int(row["epoch"]), "val": row["val_accuracy"], "test": row["test_accuracy"]}
        return {name: None if math.isnan(value) else value for name, value in part.items()}

    last, best = summary(state.metrics[-1]), summary(best_row(state))
    chosen_best = settings.select == "best"
    times = sorted(row["ms"] for row in state.metrics)
    return TrainedModel(
        seed=seed,
        weights=state.best_weights if chosen_best else dict(state.model.state_dict()),
        last=last,
        best=best,
        selected=best if chosen_best else last,
        metrics=state.metrics,
        space=state.space,
        epoch_ms=times[len(times) // 2],
    )
