"""Training that is killed and resumed, and whether two results are the same."""

from __future__ import annotations

from dataclasses import Field
from pathlib import Path
from typing import Any

import pytest
import torch

from bvat.graph import Graph
from bvat.training.callbacks import Callback
from bvat.training.loop import TrainedModel, train
from bvat.training.settings import Settings
from bvat.training.state import TrainState


class Killed(Exception):
    pass


class KillAt(Callback):
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
        if state.epoch == self.epoch:
            raise Killed


def killed_and_resumed(
    graph: Graph, settings: Settings, path: Path, at: int, every: int, *callbacks: Callback, seed: int = 0
) -> TrainedModel:
    """Return what training returns that was killed in epoch ``at`` and resumed from its checkpoint."""
    kept: dict[str, Any] = {"checkpoint": path, "checkpoint_every": every}
    with pytest.raises(Killed):
        train(graph, settings, seed, **kept, callbacks=[*callbacks, KillAt(at)])
    return train(graph, settings, seed, **kept, resume=True, callbacks=callbacks)


def without_times(trained: TrainedModel) -> list[dict[str, float | None]]:
    rows = trained.metrics
    return [{k: None if v != v else v for k, v in row.items() if k != "ms"} for row in rows]


def same(one: TrainedModel, other: TrainedModel) -> bool:
    """Return whether metrics, weights and scores agree bit for bit."""
    equal = all(torch.equal(one.weights[name], other.weights[name]) for name in one.weights)
    scores = [(each.best, each.selected, each.f1, each.stopped) for each in (one, other)]
    return equal and without_times(one) == without_times(other) and scores[0] == scores[1]


def other_values(field: Field[Any], value: Any) -> list[Any]:
    """Return values of a setting that differ from ``value``."""
    if field.metadata["choices"]:
        return [name for name in field.metadata["choices"] if name != value]
    if isinstance(value, bool):
        return [not value]
    return [2 * value or 1] if isinstance(value, int) else [value / 2 or 0.25]
