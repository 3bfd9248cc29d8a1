"""Epochs to time: the same ``run_epoch`` that ``bvat train`` calls."""

from __future__ import annotations

from bvat.bench.plan import ROWS
from bvat.bench.timing import Action
from bvat.graph import Graph
from bvat.training.loop import run_epoch
from bvat.training.settings import Settings, preset
from bvat.training.state import start_training


def settings_of(dataset: str, method: str) -> Settings:
    """Return the settings of a row of the benchmark on a data set."""
    row = ROWS[method]
    return preset(dataset, row.method, **row.overrides)


def epoch_action(graph: Graph, settings: Settings) -> Action:
    """Return an action that makes the next epoch (step and evaluation) and tells the time of the step."""
    state = start_training(graph, settings)
    return lambda: run_epoch(state)["ms"]
