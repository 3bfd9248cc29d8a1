"""Hooks of the training loop.

A callback is told when training starts, when gradients are ready, when an epoch ends and when training ends.
It may read and change the :class:`TrainState`: clip or average gradients in ``on_backward``, change ``alpha``
and ``beta`` or set ``state.stop`` in ``on_epoch``.

Example:
    >>> class StopAtPerfect(Callback):
    ...     def on_epoch(self, state, row):
    ...         state.stop = row["val_accuracy"] == 100
    >>> train(graph, settings, callbacks=[StopAtPerfect()])  # doctest: +SKIP
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from bvat.training.state import TrainState

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

    def on_end(self, state: TrainState) -> None:
        """After the last epoch; not called if training is interrupted or fails."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return what a checkpoint has to keep."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the state."""


class BestEpoch(Callback):
    """Keep the weights of the epoch with the best value of a metric; among equals the first.

    Args:
        metric: a column of the metrics. Epochs where it is NaN are skipped.
        minimize: whether smaller is better, as for a loss.

    ``epoch`` is the best epoch so far, 0 before the first one.
    """

    def __init__(self, metric: str = "val_accuracy", *, minimize: bool = False) -> None:
        self.metric, self.minimize = metric, minimize
        self.epoch, self.value = 0, math.nan
        self.weights: dict[str, Tensor] = {}

    @property
    def name(self) -> str:
        """The class and the metric."""
        return f"BestEpoch.{self.metric}"

    def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
        """Keep a copy of the weights if this epoch is the best so far."""
        value = row[self.metric]
        first = not self.epoch and not math.isnan(value)
        if first or (value < self.value if self.minimize else value > self.value):
            self.epoch, self.value = state.epoch, value
            self.weights = {name: tensor.clone() for name, tensor in state.model.state_dict().items()}

    def state_dict(self) -> dict[str, Tensor]:
        """Return epoch, value and weights."""
        best = {"epoch": torch.tensor(self.epoch), "value": torch.tensor(self.value, dtype=torch.float64)}
        return best | {f"weights.{name}": tensor for name, tensor in self.weights.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore epoch, value and weights."""
        self.epoch, self.value = int(state["epoch"]), float(state["value"])
        prefix = "weights."
        self.weights = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


class EarlyStopping(Callback):
    """Stop when the best epoch is ``patience`` epochs ago. ``best`` must come before it in the callbacks."""

    def __init__(self, best: BestEpoch, patience: int) -> None:
        self.best, self.patience = best, patience

    def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
        """Stop once patience has run out."""
        if state.epoch - self.best.epoch >= self.patience:
            state.stop = True


class EpochReporter(Callback):
    """Report the number of finished epochs, every :data:`REPORT_EVERY` epochs."""

    def __init__(self, report: Callable[[float], None]) -> None:
        self.report = report

    def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
        """Report every few epochs."""
        if state.epoch % REPORT_EVERY == 0:
            self.report(state.epoch)
