"""Hooks of the training loop.

A callback is told when training starts, when gradients are ready, when an epoch ends and when training ends.
It may read and change the :class:`TrainState`: clip or average gradients in ``on_backward``, change
``state.method.alpha`` and ``beta`` or set ``state.stop`` in ``on_epoch``.

Example:
    >>> class StopAtPerfect(Callback):
    ...     def on_epoch(self, state, row):
    ...         state.stop = row["val_accuracy"] == 100
    >>> trained = bvat.train(graph, bvat.preset("", "none", epochs=20), callbacks=[StopAtPerfect()])
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from bvat.training.state import TrainState, check_fits
from bvat.training.trained import validation_score

REPORT_EVERY = 10
"""Epochs between two progress reports."""


class Callback:
    """Base class: every method does nothing.

    A callback whose decisions depend on earlier epochs returns what it needs from ``state_dict``; it is
    written to the checkpoint under ``name`` and handed back before ``on_start`` when training resumes.
    """

    @property
    def name(self) -> str:
        """The name in a checkpoint; two callbacks with a state need different names."""
        return type(self).__name__

    def on_start(self, state: TrainState) -> None:
        """Before the first epoch; ``state.epoch`` is not 0 when training resumes from a checkpoint."""

    def on_backward(self, state: TrainState) -> None:
        """Between the backward pass and the step of the optimiser."""

    def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
        """After an epoch; ``row`` holds its metrics."""

    def on_note(self, text: str) -> None:
        """When something is worth telling before the end: the first answer of an ensemble."""

    def on_end(self, state: TrainState) -> None:
        """After the last epoch; not called if training is interrupted or fails."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return what a checkpoint has to keep."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the state."""

    def check_restored(self, state: TrainState) -> None:
        """Raise ValueError if what ``load_state_dict`` restored does not fit the state of training."""


class BestEpoch(Callback):
    """Keep the weights of the best epoch on the validation nodes; among equals the first.

    Args:
        rule: "best" compares validation accuracy, "accuracy" breaks its ties by the validation loss, "loss"
            compares the loss alone. "both" keeps the last epoch in which neither accuracy nor loss was worse
            than in any epoch before, as GAT's authors do. Micro F1 takes the place of the accuracy if nodes
            have several labels. Epochs without a value (no validation nodes) are skipped.
        with_optimizer: whether to keep the state of the optimiser too, so that training can continue there.

    ``epoch`` is the best epoch so far, 0 before the first one. ``progress`` is the last epoch that counts
    for patience: the best one, and by the rule "both" also one in which accuracy or loss was not worse.
    ``final`` says that later epochs do not count, whatever the settings select.
    """

    def __init__(self, rule: str = "best", *, with_optimizer: bool = False) -> None:
        self.rule, self.with_optimizer = rule, with_optimizer
        self.epoch = self.progress = 0
        self.final = False
        self.value: tuple[float, float] = (-math.inf, -math.inf)
        self.bar = -math.inf
        self.weights: dict[str, Tensor] = {}
        self.optimizer: dict[str, Tensor] = {}

    def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
        _, score = validation_score(row)
        value = {
            "both": (score, -row["val_loss"]),
            "best": (score, 0.0),
            "accuracy": (score, -row["val_loss"]),
            "loss": (-row["val_loss"], 0.0),
        }[self.rule]
        better = value > self.value  # NaN is not greater than anything
        if self.rule == "both":
            no_worse = [new >= old for new, old in zip(value, self.value, strict=True)]
            better = all(no_worse)
            self.progress = state.epoch if any(no_worse) else self.progress
            self.value = value = (max(self.value[0], value[0]), max(self.value[1], value[1]))
        if better and score >= self.bar:
            self.value, self.bar = value, -math.inf
            self.keep(state)

    @property
    def counts(self) -> bool:
        """Whether validation nodes chose the epoch, or no later one counts."""
        return self.final or math.isfinite(self.value[0])

    def keep(self, state: TrainState) -> None:
        """Keep the weights of this epoch, and the optimiser, as those of the best."""
        self.epoch = self.progress = state.epoch
        self.weights = _copies(state.evaluated.state_dict())
        self.optimizer = _copies(state.optimizer.state_dict()) if self.with_optimizer else {}

    def restore(self, state: TrainState) -> None:
        """Go back to the weights (and the optimiser) of the best epoch, if there is one."""
        if self.epoch:
            state.model.load_state_dict(self.weights)
            state.evaluated.load_state_dict(self.weights)
            if self.optimizer:
                state.optimizer.load_state_dict(self.optimizer)

    def raise_bar(self, margin: float) -> None:
        """Ask ``margin`` points more validation accuracy of the next best epoch than the present one has."""
        accuracy = self.value[0]
        self.bar = (
            accuracy + margin if margin and self.rule != "loss" and math.isfinite(accuracy) else -math.inf
        )

    def state_dict(self) -> dict[str, Tensor]:
        numbers = torch.tensor(
            [self.epoch, *self.value, self.bar, self.progress, self.final], dtype=torch.float64
        )
        kept = {f"weights.{name}": tensor for name, tensor in self.weights.items()}
        return {"numbers": numbers, **kept, **{f"optimizer.{k}": v for k, v in self.optimizer.items()}}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        epoch, first, second, self.bar, progress, final = state["numbers"].tolist()
        self.epoch, self.progress, self.value = int(epoch), int(progress), (first, second)
        self.final = bool(final)
        self.weights, self.optimizer = (
            {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            for prefix in ("weights.", "optimizer.")
        )

    def check_restored(self, state: TrainState) -> None:
        check_epochs(state, self.epoch, self.progress)
        if self.epoch:
            check_fits(self.weights, state.evaluated.state_dict())
        if self.optimizer:
            check_fits(self.optimizer, state.optimizer.state_dict())


def check_epochs(state: TrainState, *epochs: int) -> None:
    """Raise ValueError unless epochs lie between 0 and the present one."""
    if not all(0 <= epoch <= state.epoch for epoch in epochs):
        raise ValueError(f"it names an epoch after {state.epoch}, its last one")


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


class EarlyStopping(Callback):
    """Stop when the last progress is ``patience`` epochs ago; ``best`` comes before it in the callbacks."""

    def __init__(self, best: BestEpoch, patience: int) -> None:
        self.best, self.patience = best, patience

    def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
        if state.epoch - self.best.progress >= self.patience:
            state.stop = True


class EpochReporter(Callback):
    """Report the number of finished epochs, every :data:`REPORT_EVERY` epochs."""

    def __init__(self, report: Callable[[float], None]) -> None:
        self.report = report

    def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
        if state.epoch % REPORT_EVERY == 0:
            self.report(state.epoch)


class NotePrinter(Callback):
    """Print notes to standard error; a progress bar there stays below them."""

    def on_note(self, text: str) -> None:
        sys.stderr.write(f"note: {text}\n")
