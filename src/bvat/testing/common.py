"""What the checks share: a graph, gradients, and that training can be resumed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from bvat.data.synthetic import synthetic_graph
from bvat.graph import Graph
from bvat.training.callbacks import Callback
from bvat.training.loop import train
from bvat.training.settings import Settings


def small_graph() -> Graph:
    """Return the graph of the checks: 90 nodes, 40 sparse features, 3 classes, in double precision."""
    drawn = synthetic_graph(90, 100, 40, 3, words_per_node=5, train_per_class=4, seed=3)
    return drawn.to(dtype=torch.float64).with_engine("tensor")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gradients(model: Any, loss: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True, retain_graph=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(model.parameters(), found, strict=True)]


class _StopAt(Callback):
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch(self, state: Any, row: dict[str, float]) -> None:
        if state.epoch == self.epoch:
            raise KeyboardInterrupt


def check_training(settings: Settings, graph: Graph) -> None:
    """Raise AssertionError unless training resumes from a checkpoint with the same weights, bit for bit."""
    whole = train(graph, settings)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.safetensors"
        with suppress(KeyboardInterrupt):
            train(graph, settings, checkpoint=path, checkpoint_every=2, callbacks=[_StopAt(3)])
        resumed = train(graph, settings, checkpoint=path, resume=True)
    equal = all(torch.equal(resumed.weights[name], tensor) for name, tensor in whole.weights.items())
    assert equal, "a resumed training has other weights: something is missing from state_dict()"
