"""GRAND as published, in plain torch on dense N x D features: the reference for ours.

Feng et al., 2020, https://arxiv.org/abs/2005.11079. Every pass drops half of the nodes, propagates all D
columns, drops single entries, and goes through a perceptron; training stops when neither the loss nor the
accuracy on the validation nodes has improved for a while, and keeps the epoch with the lowest loss.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bvat.graph import Graph


@dataclass(frozen=True)
class GrandSettings:
    """GRAND's settings for a data set, as its authors publish them."""

    order: int
    samples: int
    temperature: float
    agreement: float
    input_dropout: float
    hidden_dropout: float
    lr: float = 0.01
    patience: int = 200
    batch_norm: bool = False
    hidden: int = 32
    node_dropout: float = 0.5
    weight_decay: float = 5e-4
    epochs: int = 5000


PUBLISHED = {
    "cora": GrandSettings(8, 4, 0.5, 1.0, 0.5, 0.5),
    "citeseer": GrandSettings(2, 2, 0.3, 0.7, 0.0, 0.2),
    "pubmed": GrandSettings(5, 4, 0.2, 1.0, 0.6, 0.8, lr=0.2, patience=100, batch_norm=True),
}


class Perceptron(nn.Module):
    """Two linear maps whose weights start around a negative mean, as in the published code."""

    def __init__(self, features: int, classes: int, settings: GrandSettings) -> None:
        super().__init__()
        self.settings = settings
        self.maps = nn.ModuleList([nn.Linear(features, settings.hidden), nn.Linear(settings.hidden, classes)])
        for linear in self.maps:
            spread = 1 / math.sqrt(linear.bias.numel())  # type: ignore[operator]
            for parameter in linear.parameters():
                nn.init.normal_(parameter, -spread, spread)
        widths = (features, settings.hidden) if settings.batch_norm else ()
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in widths)

    def forward(self, state: Tensor) -> Tensor:
        """Return the logits (N, C) of propagated features (N, D)."""
        rates = (self.settings.input_dropout, self.settings.hidden_dropout)
        for layer, linear in enumerate(self.maps):
            if layer:
                state = torch.relu(state)
            if len(self.norms):
                state = self.norms[layer](state)
            state = linear(F.dropout(state, rates[layer], self.training))
        return state


class DenseGrand:
    """The training of one seed.

    Args:
        graph: with validation nodes.
        settings: see :data:`PUBLISHED`.
        seed: of the weights and of everything that is dropped.
    """

    def __init__(self, graph: Graph, settings: GrandSettings, seed: int) -> None:
        torch.manual_seed(seed)
        self.graph, self.settings = graph, settings
        self.features = graph.features.to_dense()
        matrix = graph.propagation
        self.adjacency = torch.sparse_csr_tensor(
            matrix.crow, matrix.col, matrix.values, size=matrix.shape, check_invariants=False
        )
        self.model = Perceptron(graph.num_features, graph.num_classes, settings)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay
        )
        self.whole = self.propagate(self.features * (1 - settings.node_dropout))

    @torch.no_grad()
    def propagate(self, features: Tensor) -> Tensor:
        """Return ``1/(K+1) sum_k Â^k X``, shape (N, D)."""
        state, total = features, features.clone()
        for _ in range(self.settings.order):
            state = self.adjacency @ state
            total += state
        return total / (self.settings.order + 1)

    def step(self) -> None:
        """Make one step of Adam."""
        settings, graph = self.settings, self.graph
        self.model.train()
        keep = torch.full((graph.num_nodes, 1), 1 - settings.node_dropout)
        inputs = [self.propagate(self.features * torch.bernoulli(keep)) for _ in range(settings.samples)]
        logs = [torch.log_softmax(self.model(part), 1) for part in inputs]
        p = torch.stack(logs).exp()
        target = p.detach().mean(0) ** (1 / settings.temperature)
        target = target / target.sum(1, keepdim=True)
        labels = graph.labels[graph.train]
        loss = torch.stack([F.nll_loss(log[graph.train], labels) for log in logs]).mean()
        loss = loss + settings.agreement * (p - target).square().sum(2).mean()
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Return the loss on the validation nodes, and accuracies in percent."""
        self.model.eval()
        logits, graph = self.model(self.whole), self.graph
        right = logits.argmax(1) == graph.labels
        return {
            "val_loss": float(F.cross_entropy(logits[graph.val], graph.labels[graph.val])),
            "val": 100 * float(right[graph.val].float().mean()),
            "test": 100 * float(right[graph.test].float().mean()),
        }

    def train(self) -> dict[str, Any]:
        """Train until patience runs out; return the epoch with the lowest validation loss."""
        started, cpu = time.perf_counter(), time.process_time()
        lowest, highest, waited = math.inf, 0.0, 0
        best: dict[str, Any] = {}
        epoch = 0
        while epoch < self.settings.epochs and waited < self.settings.patience:
            epoch += 1
            self.step()
            found = self.evaluate()
            if found["val_loss"] <= lowest:
                best = {**found, "epoch": epoch}
            waited = 0 if found["val_loss"] <= lowest or found["val"] >= highest else waited + 1
            lowest, highest = min(lowest, found["val_loss"]), max(highest, found["val"])
        return {
            **best,
            "epochs": epoch,
            "seconds": round(time.perf_counter() - started, 2),
            "cpu_seconds": round(time.process_time() - cpu, 6),
        }
