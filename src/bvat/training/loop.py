"""The training loop: one seed of one method on one graph."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median_high
from typing import Any

import torch
from torch import Tensor

from bvat.baselines.table import BASELINES
from bvat.errors import SettingsError, TrainingError
from bvat.graph import Graph
from bvat.models.base import first_weights
from bvat.models.own import OwnModule
from bvat.perturb.terms import supervised_term
from bvat.training.baseline import fit_baseline
from bvat.training.callbacks import BestEpoch, Callback, EarlyStopping
from bvat.training.checkpoint import Checkpoint, PretrainedState
from bvat.training.interrupt import postpone_interrupts
from bvat.training.optimizer import backward, clip_gradients, learning_rate
from bvat.training.options import LOSS_RULES
from bvat.training.phases import CollapseGuard, Ramp, TwoPhases, why_stopped
from bvat.training.settings import Settings, preset
from bvat.training.state import TrainState, start_training
from bvat.training.statistics import split_scores
from bvat.training.trained import (
    MEASURED,
    METRICS,
    TrainedModel,
    held_out,
    predict,
    reached,
    share_right,
    split_micro_f1,
)

__all__ = ["METRICS", "TrainedModel", "predict", "run_epoch", "train", "training_step"]


def train(
    graph: Graph,
    settings: Settings | None = None,
    seed: int = 0,
    *,
    model: Any = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: Path | None = None,
    checkpoint_every: int = 50,
    resume: bool = False,
    pretrained: Path | None = None,
) -> TrainedModel:
    """Train one model.

    The same graph, settings and seed give the same result, bit for bit, on the same kind of CPU.

    A baseline is fitted instead, without checkpoints; of callbacks only ``on_note`` is called. Ctrl-C takes
    effect at the end of the current epoch; pressed twice, at once.

    Args:
        graph: on the device to train on.
        settings: see :class:`Settings`; by default O-BVAT's for the data set, or for any graph.
        seed: of the weights, the dropout and the search.
        model: instead of that of the settings: a name, a module, or what makes one, see :class:`Settings`.
            A module is copied; ``module.load_state_dict(trained.weights)`` gives it the trained weights.
        callbacks: hooks, see :mod:`bvat.training.callbacks`; called in this order.
        checkpoint: file for the state of training, written every ``checkpoint_every`` epochs and at Ctrl-C.
        resume: continue from ``checkpoint`` if it exists.
        pretrained: folder where the first of two phases is kept for the methods that share it, and what
            several baselines need.
    """
    settings = _chosen(settings, graph, model)
    if settings.method in BASELINES:
        return fit_baseline(graph, settings, seed, pretrained, callbacks)
    state = start_training(graph, settings, seed)
    best, phases, hooks = _own_hooks(state, pretrained)
    hooks += callbacks
    if checkpoint is not None:
        saving = Checkpoint(checkpoint, hooks, checkpoint_every)
        if resume and checkpoint.exists():
            saving.load(state)
        hooks.append(saving)  # last, so that it saves what the others made of the epoch
    for hook in hooks:
        hook.on_start(state)
    with postpone_interrupts(lambda: setattr(state, "interrupted", True)):
        while state.epoch < settings.epochs and not state.stop and not state.interrupted:
            row = run_epoch(state, hooks)
            state.interrupted = state.graph.engine.any(state.interrupted)
            for hook in hooks:
                hook.on_epoch(state, row)
    for hook in hooks:
        hook.on_end(state)
    return _result(state, best, phases)


def _chosen(settings: Settings | None, graph: Graph, model: Any) -> Settings:
    if settings is None:
        return preset("" if graph.recipe else graph.name, "obvat", model=model or "gcn")
    return settings if model is None else settings.replace(model=model)


def _own_hooks(
    state: TrainState, pretrained: Path | None
) -> tuple[BestEpoch, TwoPhases | None, list[Callback]]:
    """Return what decides on epochs and on the strength of the regulariser, in the order of its calls."""
    settings = state.settings
    blind, rule = not state.graph.engine.total(state.graph.val.numel()), settings.select
    if blind and (rule == "best" or (rule == "last" and settings.patience)):
        raise SettingsError(
            "choosing the best epoch needs validation nodes: use select 'last' and patience 0"
        )
    best = BestEpoch(rule if rule in LOSS_RULES else "best", with_optimizer=bool(settings.pretrain))
    if not settings.pretrain:
        stopping = [EarlyStopping(best, settings.patience)] if settings.patience and not blind else []
        return best, None, [best, *stopping, *([Ramp()] if settings.ramp else [])]
    phases = TwoPhases(best)
    hooks = [best, phases, *([CollapseGuard(best, phases)] if settings.guard else [])]
    if pretrained is not None:
        kept = PretrainedState(pretrained, hooks, state)
        phases.when_pretrained = kept.save
        kept.load_if_present(state)
    return best, phases, hooks


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
    part = state.scored
    logits = predict(state.evaluated, part.inputs)
    predicted = part.targets.predicted(logits)
    right = part.targets.right(predicted, part.labels)
    row = {
        "epoch": state.epoch,
        **measured,
        "train_accuracy": share_right(right, part, part.train),
        "val_accuracy": share_right(right, part, part.val),
        "test_accuracy": share_right(right, part, part.test),
        "ms": 1000 * elapsed,
        "val_loss": math.nan,
        "largest_class": math.nan,
        "val_micro_f1": split_micro_f1(predicted, part, part.val),
    }
    if state.needs_all_predictions:
        if not math.isnan(row["val_accuracy"]):
            row["val_loss"] = float(
                part.targets.loss(logits[part.val], part.labels[part.val], None, part.engine)
            )
        sizes = state.graph.engine.counts(part.targets.sizes(predicted, state.graph.num_classes))
        row["largest_class"], state.sizes = int(sizes.max()) / state.graph.num_nodes, sizes
    state.metrics.append(row)
    return row


def training_step(state: TrainState, callbacks: Sequence[Callback] = ()) -> dict[str, float]:
    """Make one step of Adam on ``L0 + alpha * mean_u E(p_u) + beta * R_vadv`` (Eq. 6); return the metrics."""
    model, settings = state.model, state.settings
    graph = state.graph.batch(state.epoch)
    model.train()
    state.generator.begin_epoch(state.epoch)
    passes = state.method.passes(model, graph, state.generator)
    terms = [supervised_term(graph, passes, state.class_weights), *state.method.terms(model, graph, passes)]
    state.optimizer.zero_grad()
    backward([term.loss for term in terms], [term.weight for term in terms])
    if settings.clip:
        clip_gradients(model.parameters(), settings.clip)
    for callback in callbacks:
        callback.on_backward(state)
    state.optimizer.lr = learning_rate(settings.training, state.epoch)
    state.optimizer.step()
    if state.average is not None:
        update_average(state.average, model, settings.average)
    found = {name: value for term in terms for name, value in term.measured.items()}
    known = numbers([*(term.loss for term in terms), *found.values()])
    loss = sum(term.weight * value for term, value in zip(terms, known, strict=False))
    measured = dict(zip(found, known[len(terms) :], strict=True))
    return {"loss": loss, **dict.fromkeys(MEASURED, 0.0), **measured}


def numbers(values: Iterable[Any]) -> list[float]:
    """Return scalars as numbers; what lies on a device comes in one transfer."""
    given = [each.detach() if isinstance(each, Tensor) else each for each in values]
    there = [isinstance(each, Tensor) and not each.is_cpu for each in given]
    tensors = [each.double() for each, away in zip(given, there, strict=True) if away]
    moved = iter(torch.stack(tensors).tolist() if tensors else ())
    return [next(moved) if away else float(each) for each, away in zip(given, there, strict=True)]


@torch.no_grad()
def update_average(average: Any, model: Any, kept: float) -> None:
    """Move averaged weights towards those of the model: ``kept * average + (1 - kept) * weights``."""
    for mean, value in zip(average.parameters(), model.parameters(), strict=True):
        mean.lerp_(value, 1 - kept)
    for mean, value in zip(average.buffers(), model.buffers(), strict=True):
        mean.copy_(value)


def _result(state: TrainState, best: BestEpoch, phases: TwoPhases | None) -> TrainedModel:
    last = reached(state.metrics[-1])
    best_or_last = reached(state.metrics[best.epoch - 1]) if best.counts else last
    select_best = best.final or (best.counts and state.settings.select != "last")
    selected = best_or_last if select_best else last
    if select_best:
        state.evaluated.load_state_dict(best.weights)
    weights = _unscaled(state, dict(state.evaluated.state_dict()))
    logits = predict(state.evaluated, state.graph)
    if state.graph.engine.any(
        not all(bool(tensor.isfinite().all()) for tensor in [*weights.values(), logits])
    ):
        raise TrainingError(
            f"the weights of epoch {selected['epoch']} are not finite numbers, or so large that their "
            "predictions are not: lower lr, beta or the perturbation"
        )
    return TrainedModel(
        seed=state.seed,
        weights=weights,
        last=last,
        best=best_or_last,
        selected=selected,
        metrics=state.metrics,
        space=state.method.space,
        epoch_ms=median_high(row["ms"] for row in state.metrics),
        events=state.events,
        phases=phases.lengths(selected["epoch"]) if phases else {"first": 0, "second": selected["epoch"]},
        f1=split_scores(state.graph.targets.predicted(logits), state.graph),
        nodes=held_out(state.graph),
        stopped=why_stopped(state, best, phases),
    )


def _unscaled(state: TrainState, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return weights for the features as they are in the graph: ``(c X) W0 = X (c W0)``."""
    scaling = state.scaling
    if not isinstance(scaling, Tensor) and scaling == 1:
        return weights
    if isinstance(scaling, Tensor):  # weights of modules are (H, D)
        scaling = scaling if isinstance(state.model, OwnModule) else scaling[:, None]
    first = {id(weight) for weight in first_weights(state.model)}
    named = state.model.named_parameters(remove_duplicate=False)
    scaled = {name: weights[name] * scaling for name, parameter in named if id(parameter) in first}
    return weights | scaled
