"""Epoch times of methods, measured in turn so that any disturbance affects all of them.

An epoch is the same ``run_epoch`` that ``bvat train`` calls: the training step and the evaluation after it.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from bvat.data import load
from bvat.graph import Graph
from bvat.perturb.methods import ON_GCN
from bvat.store.pool import thread_count
from bvat.training.loop import run_epoch
from bvat.training.provenance import package_versions
from bvat.training.settings import Settings, has_preset, preset_among, short_name
from bvat.training.state import start_training

DATASETS = ("cora", "citeseer", "pubmed", "nell")
PACKAGES = ("torch", "numpy", "scipy", "numba")
Action = Callable[[], float]
"""Does something once (an epoch) and returns the milliseconds of a part of it (the step)."""


@dataclass(frozen=True)
class BenchRow:
    """A method, or a variant of one with settings that differ from the preset."""

    method: str
    title: str
    overrides: dict[str, Any] = field(default_factory=dict)


ROWS = {name: BenchRow(row.name, row.short) for name, row in ON_GCN.items() if name != "grand"} | {
    "obvat": BenchRow("obvat", "O-BVAT, 10 steps", {"search": "adam", "steps": 10}),
    "obvat-fast": BenchRow("obvat", "O-BVAT, fast search", {"search": "fast", "steps": 1, "masks": "reuse"}),
    "random-propagation": BenchRow(
        "grand", "random propagation, 4 passes", {"model": "random-propagation", "ramp": 0}
    ),
}
"""The methods with their presets, except O-BVAT: ten steps of Adam, and one full step of the fast search that
reuses the projection of the clean pass. Random propagation stands for GRAND, with the model that GRAND is
made for."""


def settings_of(dataset: str, row: str, **changes: Any) -> Settings:
    """Return the settings of a row of the benchmark on a data set.

    Presets of other graphs start with a phase without the regulariser, and then leave out nodes that the
    model is unsure of. Here the regulariser acts on all nodes from the first epoch.
    """
    at_once = {} if has_preset(dataset) else {"pretrain": 0, "ramp": 0, "confidence": 0.0}
    return preset_among(dataset, ROWS[row].method, **{**at_once, **ROWS[row].overrides, **changes})


@dataclass(frozen=True)
class Budget:
    """How long to measure: warm-up rounds, then rounds until there are enough or the time is up."""

    warmup: int = 5
    rounds: int = 200
    seconds: float = 60.0
    min_rounds: int = 5
    """Rounds that are run however long they take."""


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
            began = time.perf_counter()
            action()
            fast = 1000 * (time.perf_counter() - began) < settle_below_ms
            settle = settle | {name} if fast else settle - {name}
    started, done = time.perf_counter(), 0
    while done < budget.min_rounds or (
        done < budget.rounds and time.perf_counter() - started < budget.seconds
    ):
        for name, action in actions.items():
            if name in settle:
                action()
            wall, cpu = time.perf_counter(), time.process_time()
            times[name].step.append(action())
            times[name].epoch.append(1000 * (time.perf_counter() - wall))
            times[name].cpu.append(1000 * (time.process_time() - cpu))
        done += 1
    return times


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


def run_bench(
    datasets: Sequence[str],
    budget: Budget,
    log: Callable[[str], None],
    methods: Sequence[str] = tuple(ROWS),
    device: str = "cpu",
) -> dict[str, Any]:
    """Measure methods, a GCN among them, with one thread; return what ``bvat bench --json`` prints.

    An epoch on a GPU ends with the transfer of what is logged, so its time needs no further synchronisation.
    """
    found: dict[str, Any] = {"epoch_ms": {}, "step_ms": {}, "over_gcn": {}, "settings": {}}
    with thread_count(1):
        for source in datasets:
            name, graph = short_name(source), load(source)
            log(f"{name}: {', '.join(methods)}")
            measured = measure_methods(graph.to(device), name, methods, budget)
            gcn = measured["gcn"]["epoch_ms"]
            for method, row in measured.items():
                for key in ("epoch_ms", "step_ms", "settings"):
                    found[key].setdefault(name, {})[method] = row[key]
                found["over_gcn"].setdefault(name, {})[method] = row["epoch_ms"] / gcn
        return {**found, "versions": package_versions(PACKAGES), "machine": machine(device)}


def machine(device: str = "cpu") -> dict[str, Any]:
    """Return what a result depends on besides the code, without names and paths."""
    try:
        memory_gb = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, ValueError, OSError):
        memory_gb = None
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gb": memory_gb,
        "device": "cpu" if device == "cpu" else torch.cuda.get_device_name(),
        "cuda": None if device == "cpu" else torch.version.cuda,
    }
