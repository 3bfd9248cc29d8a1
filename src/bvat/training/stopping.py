"""Why training stopped before its last epoch, in words."""

from __future__ import annotations

from collections.abc import Sequence

from bvat.training.callbacks import BestEpoch
from bvat.training.phases import TwoPhases
from bvat.training.state import TrainState


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
    elif phases and not phases.began and epoch >= settings.pretrain:
        return ""  # a plain method has the first phase only, and it is over
    elif phases and phases.began and epoch - phases.began >= settings.epochs - settings.pretrain:
        return ""  # the first phase was shorter than it could be, the second is over
    else:
        reason = "predictions collapsed again" if _collapsed(state) else "a callback asked for it"
    return f"stopped at epoch {epoch} of {settings.epochs}: {reason}"


def _collapsed(state: TrainState) -> bool:
    return any(event.startswith(f"epoch {state.epoch}: ") for event in state.events)


def stopping_text(stops: Sequence[str], seeds: int, most: int = 3) -> str:
    """Return one line about the seeds that stopped early; nothing if none did.

    Args:
        stops: ``stopped`` of a summary, such as "seed 0 stopped at epoch 87 of 200: no better validation".
        seeds: the number of seeds.
        most: how many seeds are described one by one.
    """
    if not stops or len(stops) <= most:
        return "; ".join(stops)
    epochs = [int(text.split(" at epoch ")[1].split(" of ")[0]) for text in stops]
    reasons = list(dict.fromkeys(text.split(": ", 1)[1] for text in stops))
    where = f"at epochs {min(epochs)} to {max(epochs)}"
    return f"{len(stops)} of {seeds} seeds stopped early, {where}: {' or '.join(reasons)}"
