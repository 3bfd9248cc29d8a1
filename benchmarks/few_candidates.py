"""Networks that ``auto`` might have beside its GCN: what each adds with few labels, on development draws.

Each joins the networks of effort 2 in turn (:mod:`few_members`). A second GCN with other initial weights is
what they have to beat: two networks are better than one. None of them is part of bvat, because none of them
raises the mean by :data:`WORTH` points:

    python benchmarks/few_candidates.py cora citeseer FILE.npz... --labels 2,5,20 --draws 0-1
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bvat
import few_members
from bvat.graph import GraphInputs
from bvat.models.base import Masks
from bvat.models.gcn import GCN
from bvat.models.layered import LayeredModel, dropped, glorot
from bvat.models.mlp import MLP
from bvat.models.table import NetworkOptions
from bvat.perturb.flag import CleanPass, OnLabels
from bvat.perturb.regulariser import Outcome

WORTH = 0.3
"""Points by which a member has to raise the mean to be kept."""


class SecondGCN(GCN):
    """A GCN with other initial weights."""

    def __init__(self, *args: Any, generator: torch.Generator | None = None, **options: Any) -> None:
        torch.rand(1, generator=generator)
        super().__init__(*args, generator=generator, **options)


class ResidualGCN(LayeredModel):
    """``H' = dropout(relu(norm(Â H W + H R)))`` in K layers, then a linear map (Luo et al., 2024)."""

    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        hidden: int = 64,
        layers: int = 2,
        dropout: float = 0.5,
        generator: torch.Generator | None = None,
    ) -> None:
        sizes = [(in_features, 2 * hidden), *[(hidden, 2 * hidden)] * (layers - 1), (hidden, classes)]
        weights = [glorot(rows, columns, generator) for rows, columns in sizes]
        super().__init__(weights, dropout=dropout, hidden_widths=[hidden] * layers)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(layers))

    @property
    def depth(self) -> int:
        return len(self.norms)

    def propagate(self, inputs: GraphInputs, projected: Tensor, masks: Masks | None = None) -> Tensor:
        state = projected
        for layer, norm in enumerate(self.norms):
            neighbours, own = state.chunk(2, 1)
            state = dropped(torch.relu(norm(inputs.propagation @ neighbours + own)), masks, layer)
            state = inputs.engine.times(state, self.weights[layer + 1])
        return state


class GCNII(LayeredModel):
    """``H' = relu(((1 - a) Â H + a H_0) ((1 - b) I + b W))``, b = log(.5 / l + 1) (Chen et al., 2020)."""

    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        hidden: int = 64,
        layers: int = 8,
        dropout: float = 0.5,
        generator: torch.Generator | None = None,
        initial: float = 0.1,
    ) -> None:
        sizes = [(in_features, hidden), *[(hidden, hidden)] * layers, (hidden, classes)]
        weights = [glorot(rows, columns, generator) for rows, columns in sizes]
        super().__init__(weights, dropout=dropout, hidden_widths=[hidden] * (layers + 1))
        self.initial = initial

    @property
    def depth(self) -> int:
        return len(self.weights) - 2

    def propagate(self, inputs: GraphInputs, projected: Tensor, masks: Masks | None = None) -> Tensor:
        first = state = torch.relu(projected)
        for layer, weight in enumerate(list(self.weights)[1:-1]):
            spread = inputs.propagation @ dropped(state, masks, layer)
            mixed, share = (1 - self.initial) * spread + self.initial * first, math.log(0.5 / (layer + 1) + 1)
            state = torch.relu((1 - share) * mixed + share * inputs.engine.times(mixed, weight))
        return inputs.engine.times(dropped(state, masks, self.depth), self.weights[-1])


class GPRGNN(MLP):
    """``sum_k g_k Â^k H``, g learnt from PageRank's on, H a perceptron's (Chien et al., 2021)."""

    def __init__(
        self,
        in_features: int,
        classes: int,
        *,
        steps: int = 10,
        teleport: float = 0.1,
        generator: torch.Generator | None = None,
        **options: Any,
    ) -> None:
        super().__init__(in_features, classes, generator=generator, **options)
        self.hidden_widths = (*self.hidden_widths, classes)
        shares = [teleport * (1 - teleport) ** k for k in range(steps)] + [(1 - teleport) ** steps]
        self.shares = nn.Parameter(torch.tensor(shares))

    @property
    def depth(self) -> int:
        return self.shares.numel() - 1

    def propagate(self, inputs: GraphInputs, projected: Tensor, masks: Masks | None = None) -> Tensor:
        state = dropped(super().propagate(inputs, projected, masks), masks, len(self.hidden_widths) - 1)
        total = self.shares[0] * state
        for share in self.shares[1:]:
            state = inputs.propagation @ state
            total = total + share * state
        return total


@dataclass(frozen=True, kw_only=True)
class SharpeningOptions(bvat.RegulariserOptions):
    alpha: float = bvat.option(0.0, "weight of the entropy of all nodes", at_least=0)
    beta: float = bvat.option(0.3, "weight of unlabelled nodes' entropy minus labelled ones'", at_least=0)


@dataclass
class Sharpening(OnLabels):
    """Entropy down on unlabelled nodes, up on labelled ones."""

    space: str = "auto"
    dropout: str = "reuse"
    divergence: str = "kl"
    confidence: float = 0.0

    def outcome(self, model: Any, inputs: Any, clean: CleanPass) -> Outcome:
        free = torch.ones(len(clean.logits), dtype=torch.bool)
        free[clean.train] = False
        entropy, zero = inputs.engine.entropy, clean.logits.new_zeros(())
        loss = entropy(clean.logits[free]) - entropy(clean.logits[~free])
        return Outcome(loss, len(free), zero, zero, "none")


@dataclass(frozen=True, kw_only=True)
class DeepOptions(NetworkOptions):
    layers: int = bvat.option(8, "number of layers K", at_least=1, at_most=1000)


CANDIDATES: dict[str, bvat.Model | bvat.MethodRow] = {
    row.name: row
    for row in (
        bvat.Model("second-gcn", "a second GCN", SecondGCN, NetworkOptions),
        bvat.Model("residual-gcn", "GCN with normalisation and residuals", ResidualGCN, NetworkOptions),
        bvat.Model("gcnii", "GCNII", GCNII, DeepOptions),
        bvat.Model("gpr-gnn", "GPR-GNN", GPRGNN, NetworkOptions),
        bvat.MethodRow("sharpening", "GCN + sharpening", "", SharpeningOptions, Sharpening),
    )
}


def ensembles() -> dict[str, tuple[str, ...]]:
    """Return the networks of each ensemble that is measured."""
    base = few_members.NETWORK
    every = tuple(name for name in CANDIDATES if name != "second-gcn")
    return {"effort 2": base, **{name: (*base, name) for name in CANDIDATES}, "all": (*base, *every)}


def main(arguments: Sequence[str]) -> None:
    for row in CANDIDATES.values():
        bvat.register(row)
    few_members.main(arguments, Path(__file__).name, ensembles(), Path("results/few-labels/candidates.json"))


if __name__ == "__main__":
    main(sys.argv[1:])
