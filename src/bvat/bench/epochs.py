"""Epochs to be timed: the same ``run_epoch`` that ``bvat train`` calls."""

from __future__ import annotations

import torch

from bvat.bench.timing import Action
from bvat.graph import Graph
from bvat.training.build import build_model, build_regulariser
from bvat.training.loop import TrainState, make_optimizer, run_epoch
from bvat.training.settings import Settings, preset


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


def start(graph: Graph, settings: Settings, seed: int = 0) -> TrainState:
    """Return the state of a training run before its first epoch."""
    generator = torch.Generator(graph.device).manual_seed(seed + 2**32)
    model = build_model(
        settings, graph.num_features, graph.num_classes, torch.Generator().manual_seed(seed)
    ).to(graph.device)
    return TrainState(
        model=model,
        optimizer=make_optimizer(model, settings),
        regulariser=build_regulariser(settings, generator),
        generator=generator,
    )


def epoch_action(graph: Graph, settings: Settings) -> Action:
    """Return an action that makes the next epoch (step and evaluation) and tells the time of the step."""
    state = start(graph, settings)
    return lambda: run_epoch(state, graph, settings)["ms"]
