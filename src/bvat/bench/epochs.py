"""Times of epochs and other actions, measured in turn so that any disturbance affects all of them.

An epoch is the same ``run_epoch`` that ``bvat train`` calls: the training step and the evaluation after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bvat.bench.plan import Budget, settings_of
from bvat.graph import Graph
from bvat.training.loop import run_epoch
from bvat.training.settings import Settings
from bvat.training.state import start_training

Action = Callable[[], float]
"""Does something once (an epoch) and returns the milliseconds of a part of it (the step)."""


@dataclass
class Times:
    """Milliseconds of every epoch: wall time, CPU time, and wall time of its training step."""

    epoch: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    step: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, float]:
        """Return medians, 10 % quantiles (close to those of an idle machine) and the number of epochs."""
        found: dict[str, float] = {}
        for name, values in (("epoch_ms", self.epoch), ("epoch_cpu_ms", self.cpu), ("step_ms", self.step)):
            found[name], found[f"{name}_p10"] = map(float, np.quantile(values, (0.5, 0.1)))
        return {**found, "epochs": len(self.epoch)}


def interleave(
    actions: Mapping[str, Action], budget: Budget, *, settle_below_ms: float = 0.0
) -> dict[str, Times]:
    """Run every action once per round, in turn, and return the times of each.

    An action faster than ``settle_below_ms`` is first run once without timing. Another action may have used
    much more memory just before; this refills the caches, as in a training run.
    """
    times = {name: Times() for name in actions}
    settle: set[str] = set()
    for _ in range(max(1, budget.warmup)):
        for name, action in actions.items():
            elapsed = _timed(action)[0]
            settle = settle | {name} if elapsed < settle_below_ms else settle - {name}
    started = time.perf_counter()
    done = 0
    while done < budget.min_rounds or (
        done < budget.rounds and time.perf_counter() - started < budget.seconds
    ):
        for name, action in actions.items():
            if name in settle:
                action()
            for values, value in zip(
                (times[name].epoch, times[name].cpu, times[name].step), _timed(action), strict=True
            ):
                values.append(value)
        done += 1
    return times


def _timed(action: Action) -> tuple[float, float, float]:
    """Run an action; return its wall time, its CPU time and what it returned, in milliseconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    step = action()
    return 1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu), step


def epoch_action(graph: Graph, settings: Settings) -> Action:
    """Return an action that runs the next epoch and returns the time of its training step."""
    state = start_training(graph, settings)
    return lambda: run_epoch(state)["ms"]


def measure_methods(
    graph: Graph, dataset: str, methods: Sequence[str], budget: Budget
) -> dict[str, dict[str, Any]]:
    """Return the times and settings of each row of the benchmark; one epoch of each in turn."""
    settings = {method: settings_of(dataset, method) for method in methods}
    actions = {method: epoch_action(graph, settings[method]) for method in methods}
    times = interleave(actions, budget)
    return {method: {**times[method].summary(), "settings": settings[method].as_dict()} for method in methods}
