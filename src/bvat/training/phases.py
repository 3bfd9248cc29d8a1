"""Training in two phases, the guard against collapse, and why training stopped early.

A regulariser that acts on predictions which mean nothing yet can pull them all to one class. So the first
phase trains without it, until validation shows that nothing more is gained; the second starts from the best
epoch of the first, with the regulariser growing over a few epochs. Both phases are judged by the same
validation nodes, and the second one is kept only where it is better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from bvat.training.callbacks import BestEpoch, Callback, check_epochs
from bvat.training.state import TrainState
from bvat.training.trained import validation_score

COLLAPSED = 0.95
"""Share of the nodes in one predicted class at which predictions count as collapsed."""
FALL = 10.0
"""Points of validation accuracy below the best epoch at which training counts as collapsed."""
MOVED = 0.1
"""Share of the nodes by which the sizes of the predicted classes may move in the second phase where no
validation nodes notice a collapse."""
MOST_RESTARTS = 3
"""Number of times that the guard weakens a regulariser before it ends training."""


class TwoPhases(Callback):
    """First without, then with the regulariser.

    The first phase has at most ``settings.pretrain`` epochs, the second what ``settings.epochs`` leaves.

    Patience counts epochs in which neither validation accuracy nor validation loss got better, in each phase
    by itself. Without validation nodes both phases run to their end.

    ``best`` selects the epoch that is kept, and comes before this callback; ``when_pretrained`` is called at
    the end of the first phase.
    """

    when_pretrained: Callable[[TrainState], None] | None = None

    def __init__(self, best: BestEpoch) -> None:
        self.best = best
        self.pretrained, self.origin, self.began, self.started, self.progress = False, 0, 0, 0, 0
        self.lowest = math.inf
        self.strength = 1.0

    def on_start(self, state: TrainState) -> None:
        if self.started:
            self._set_weights(state)
        elif self.pretrained:
            self._begin(state)
        else:
            state.method.set_strength(0.0)

    def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
        if self.best.epoch == state.epoch:
            self.progress = state.epoch
        if row["val_loss"] < self.lowest:
            self.lowest, self.progress = row["val_loss"], state.epoch
        patience = state.settings.patience
        patient = not patience or math.isnan(row["val_loss"]) or state.epoch - self.progress < patience
        if self.started:
            left = state.settings.epochs - state.settings.pretrain - (state.epoch - self.began)
            state.stop = state.stop or not patient or left <= 0
            self._set_weights(state)
        elif not patient or state.epoch >= state.settings.pretrain:
            self.pretrained = True
            if self.when_pretrained is not None:
                self.when_pretrained(state)
            self._begin(state)

    def _begin(self, state: TrainState) -> None:
        """Start the second phase from the best epoch; a method without a regulariser has none."""
        settings = state.settings
        state.method.set_strength(1.0)
        if not state.method.regularises:
            state.stop = True
            return
        self.origin = self.best.epoch or state.epoch
        self.best.restore(state)
        self.best.raise_bar(settings.margin)
        self.began = self.started = self.progress = state.epoch
        self.lowest = math.inf
        self._set_weights(state)

    def over(self, state: TrainState) -> bool:
        """Whether the last phase had all its epochs: a plain method has the first one only."""
        training = state.settings.training
        if not self.began:
            return state.epoch >= training.pretrain
        return state.epoch - self.began >= training.epochs - training.pretrain

    def lengths(self, epoch: int) -> dict[str, int]:
        """Return how many epochs of each phase the weights of ``epoch`` went through."""
        if not self.began or epoch <= self.began:
            return {"first": epoch, "second": 0}
        return {"first": self.origin, "second": epoch - self.began}

    def restart(self, state: TrainState) -> None:
        """Let the regulariser grow again from here, with its present strength."""
        self.started = self.progress = state.epoch
        self._set_weights(state)

    def _set_weights(self, state: TrainState) -> None:
        state.method.set_strength(self.strength * grown(state.settings.ramp, state.epoch - self.started))

    def state_dict(self) -> dict[str, Tensor]:
        epochs = (self.origin, self.began, self.started, self.progress)
        numbers = (self.pretrained, *epochs, self.lowest, self.strength)
        return {"numbers": torch.tensor([float(number) for number in numbers], dtype=torch.float64)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        pretrained, *epochs, self.lowest, self.strength = state["numbers"].tolist()
        self.pretrained = bool(pretrained)
        self.origin, self.began, self.started, self.progress = map(int, epochs)

    def check_restored(self, state: TrainState) -> None:
        check_epochs(state, self.origin, self.began, self.started, self.progress)


class Ramp(Callback):
    """Let the regulariser grow to its full weight over the first epochs."""

    def on_start(self, state: TrainState) -> None:
        state.method.set_strength(grown(state.settings.ramp, state.epoch))

    def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
        self.on_start(state)


def grown(ramp: int, epochs: int) -> float:
    """Return the share of its weight that a regulariser has after some epochs of a ramp."""
    return min(1.0, (epochs + 1) / ramp) if ramp else 1.0


class CollapseGuard(Callback):
    """Notice that the regulariser ruins the predictions, go back to the best epoch, and weaken it.

    Predictions collapse when nearly all nodes are predicted as one class although they were not before, or
    when validation accuracy falls far below that of the best epoch. Without validation nodes, when the sizes
    of the predicted classes move away from those after the first phase, whose last epoch is then the best.
    Each time alpha and beta are halved and the best weights restored; after a few times training ends, and
    the best epoch is kept. ``state.events`` tells what happened.
    """

    def __init__(self, best: BestEpoch, phases: TwoPhases) -> None:
        self.best, self.phases = best, phases
        self.restarts = 0
        self.sizes = torch.zeros(0, dtype=torch.int64)

    def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
        if not self.phases.started or state.stop:
            return
        if not self.best.epoch and state.sizes is not None:  # the second phase has just begun
            self.best.keep(state)
            self.sizes = state.sizes.cpu()
        if state.epoch == self.phases.started:
            return
        what = self._collapse(state, row, state.metrics[self.best.epoch - 1])
        if not what:
            return
        self.restarts += 1
        self.phases.strength /= 2
        if self.restarts > MOST_RESTARTS:
            self.best.final = state.stop = True
            state.events.append(f"epoch {state.epoch}: {what}; training ended and the best epoch is kept")
            return
        self.best.restore(state)
        self.phases.restart(state)
        state.events.append(
            f"epoch {state.epoch}: {what}; the regulariser was weakened to {self.phases.strength:g} of its "
            "weight and training continued from the best epoch"
        )

    def _collapse(self, state: TrainState, row: dict[str, float], before: dict[str, float]) -> str:
        """Return in words why predictions count as collapsed, or nothing."""
        if row["largest_class"] >= COLLAPSED > before["largest_class"] + 0.05:
            return f"{100 * row['largest_class']:.0f} % of the nodes were predicted as one class"
        (name, now), (_, best) = validation_score(row), validation_score(before)
        if best - now > FALL:  # False without validation nodes
            return f"validation {name} fell from {best:.1f} to {now:.1f}"
        if self.sizes.numel() and state.sizes is not None:
            moved = (
                float((state.sizes.cpu() - self.sizes).abs().sum()) / 2 / max(1.0, float(self.sizes.sum()))
            )
            if moved > MOVED:
                return f"the sizes of the predicted classes moved by {100 * moved:.0f} % of the nodes"
        return ""

    def state_dict(self) -> dict[str, Tensor]:
        return {"restarts": torch.tensor(self.restarts), "sizes": self.sizes}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.restarts, self.sizes = int(state["restarts"]), state["sizes"]


def why_stopped(state: TrainState, best: BestEpoch, phases: TwoPhases | None) -> str:
    """Return at which epoch training stopped early and why; nothing if it ran to its end.

    All of it is read from what a checkpoint keeps, so that a resumed run says the same.
    """
    settings, epoch = state.settings, state.epoch
    if epoch >= settings.epochs or not state.stop:
        return ""
    waited = epoch - (phases.progress if phases else best.progress)
    if settings.patience and waited >= settings.patience:
        reason = f"no better validation for {settings.patience} epochs"
    elif phases and phases.over(state):
        return ""
    else:
        collapsed = any(event.startswith(f"epoch {epoch}: ") for event in state.events)
        reason = "predictions collapsed again" if collapsed else "a callback asked for it"
    return f"stopped at epoch {epoch} of {settings.epochs}: {reason}"


def stopping_text(stops: Sequence[str], seeds: int, most: int = 3) -> str:
    """Return one line about the seeds that stopped early; nothing if none did."""
    if not stops or len(stops) <= most:
        return "; ".join(stops)
    epochs = [int(text.split(" at epoch ")[1].split(" of ")[0]) for text in stops]
    reasons = list(dict.fromkeys(text.split(": ", 1)[1] for text in stops))
    where = f"at epochs {min(epochs)} to {max(epochs)}"
    return f"{len(stops)} of {seeds} seeds stopped early, {where}: {' or '.join(reasons)}"
