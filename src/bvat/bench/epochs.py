"""Epochs to time: the same ``run_epoch`` that ``bvat train`` calls."""

from __future__ import annotations

import torch

from bvat.bench.plan import ROWS
from bvat.bench.timing import Action
from bvat.graph import Graph
from bvat.training.build import build_model, build_regulariser
from bvat.training.loop import TrainState, make_optimizer, run_epoch
from bvat.training.settings import Settings, preset


def settings_of(dataset: str, method: str) -> Settings:
    """Return the settings of a row of the benchmark on a data set."""
    row = ROWS[method]
    return preset(dataset, row.method, **row.overrides)


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
    """Return an action that runs the next epoch (step and evaluation) and returns the time of the step."""
    state = start(graph, settings)
    return lambda: run_epoch(state, graph, settings)["ms"]
