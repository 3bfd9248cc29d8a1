"""Epochs to be timed: the same ``run_epoch`` that ``bvat train`` calls."""

from __future__ import annotations

from bvat.bench.timing import Action
from bvat.graph import Graph
from bvat.training.loop import run_epoch
from bvat.training.settings import Settings, preset
from bvat.training.state import start_training


def settings_of(dataset: str, method: str) -> Settings:
    """Return the preset of a method.

    ``obvat`` is with ten steps of Adam, also where the preset has the fast search; ``obvat-fast`` with one
    full step that reuses the clean pass's projection.
    """
    if method == "obvat":
        return preset(dataset, method, search="adam", steps=10)
    if method == "obvat-fast":
        return preset(dataset, "obvat", search="fast", steps=1, masks="reuse")
    return preset(dataset, method)


def epoch_action(graph: Graph, settings: Settings) -> Action:
    """Return an action that makes the next epoch (step and evaluation) and tells the time of the step."""
    state = start_training(graph, settings)
    return lambda: run_epoch(state)["ms"]
