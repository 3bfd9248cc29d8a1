"""Times of several actions, measured in turn so that whatever disturbs the machine disturbs them all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bvat.bench.plan import Effort

Action = Callable[[], float]
"""Does something once (an epoch) and returns how many milliseconds a part of it (the step) took."""


def quantile(values: list[float], share: float) -> float:
    """Return the quantile of a list, linear between neighbours; share 0.5 is the median."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


@dataclass
class Times:
    """Milliseconds of every epoch, and of the training step in it."""

    epoch: list[float] = field(default_factory=list)
    step: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, float]:
        """Return medians, 10 % quantiles (what a quiet machine would give) and the number of epochs."""
        return {
            "epoch_ms": statistics.median(self.epoch),
            "epoch_ms_p10": quantile(self.epoch, 0.1),
            "step_ms": statistics.median(self.step),
            "step_ms_p10": quantile(self.step, 0.1),
            "epochs": len(self.epoch),
        }


def interleave(
    actions: Mapping[str, Action], effort: Effort, *, settle_below_ms: float = 0.0
) -> dict[str, Times]:
    """Run every action once a round, in turn, and return the times of each.

    Args:
        actions: what to measure, by name.
        effort: how many rounds.
        settle_below_ms: an action faster than this is run once more, untimed, right before. Where another
            action has just gone through much more memory, that gives the fast one back its caches, as it
            has them in a training run of its own.
    """
    times = {name: Times() for name in actions}
    settle: set[str] = set()
    for _ in range(max(1, effort.warmup)):
        for name, action in actions.items():
            elapsed, _ = _timed(action)
            settle = settle | {name} if elapsed < settle_below_ms else settle - {name}
    started = time.perf_counter()
    done = 0
    while done < effort.least or (done < effort.rounds and time.perf_counter() - started < effort.seconds):
        for name, action in actions.items():
            if name in settle:
                action()
            elapsed, step = _timed(action)
            times[name].epoch.append(elapsed)
            times[name].step.append(step)
        done += 1
    return times


def _timed(action: Action) -> tuple[float, float]:
    """Run an action; return the milliseconds of the whole and of its part."""
    started = time.perf_counter()
    step = action()
    return 1000 * (time.perf_counter() - started), step
