"""Epochs to be timed: the same ``run_epoch`` that ``bvat train`` calls."""

from __future__ import annotations

from dataclasses import replace

import torch

from bvat.bench.timing import Action
from bvat.graph import Graph
from bvat.training.build import build_model, build_regulariser
from bvat.training.loop import TrainState, make_optimizer, run_epoch
from bvat.training.settings import Settings, preset


def settings_of(dataset: str, method: str) -> Settings:
    """Return the preset of a method; ``obvat-fast`` is O-BVAT with ``search="fast"``.

    The fast search makes one step, unless the presets say something else for it than for Adam.
    """
    if method != "obvat-fast":
        return preset(dataset, method)
    slow, fast = preset(dataset, "obvat"), preset(dataset, "obvat", search="fast")
    return replace(fast, steps=1) if slow.search != "fast" and fast.steps == slow.steps else fast


def start(graph: Graph, settings: Settings, seed: int = 0) -> TrainState:
    """Return the state of a training run before its first epoch."""
    generator = torch.Generator(graph.device).manual_seed(seed + 2**32)
    model = build_model(settings, graph, torch.Generator().manual_seed(seed)).to(graph.device)
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
