"""The least that an epoch costs: bytes and flops, counted from the sizes (used by ``benchmarks/limit.py``).

With N nodes, D features, H hidden units, C classes, z_x stored entries of X, z_a of Â, w = min(H, C), numbers
and indices of 4 bytes, every operand read once and every result written once:

    sparse(rows, columns, z, h) = 8 z + 4 (rows + 1) + 4 h (rows + columns) bytes,  2 z h flops
    dense(n, k, m)              = 4 (n k + k m + n m) bytes,                        2 n k m flops
    softmax                     = 8 N C bytes,                                      5 N C flops
    adam(n)                     = 28 n bytes (4 read, 3 written),                   12 n flops

    project   = sparse(N, D, z_x, H)                                  X W0
    collect   = sparse(D, N, z_x, H)                                  Xᵀ G, the gradient of W0
    forward   = sparse(N, N, z_a, H) + dense(N, H, C) + sparse(N, N, z_a, w)
    backward  = sparse(N, N, z_a, w) + dense(N, C, H) + sparse(N, N, z_a, H)
    weights   = dense(H, N, C)                                        the gradient of W1

    GCN epoch = project + forward + backward + weights + collect + adam(D H + H C)      the step
                + project + forward                                                     the evaluation

A regulariser on all nodes whose search takes T gradients in the factored space adds

    T (forward + softmax + backward + 2 dense(N, H, H)) + T adam(N H) if Adam searches, else T 8 N H bytes
    + forward + softmax + backward + weights + dense(N, H, H)         the perturbed pass of the loss
    + dense(H, D, H) + dense(D, H, H)                                 W0ᵀ W0, and the gradient through R W0
    + projections of its own: T + 1 project and a collect for fresh masks, one each for masks "pair", none for
      "reuse" and "shared"
    + 2 softmax                                                       entropy, and the clean side of the KL

Dropout masks, relu and sums can be fused into these operations and are not counted. S-BVAT works on a random
part of the graph, so its cost is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from bvat.graph import Graph
from bvat.training.settings import Settings


class Cost(NamedTuple):
    """Bytes moved and floating-point operations."""

    bytes: float
    flops: float

    def __add__(self, other: object) -> Cost:
        if not isinstance(other, Cost):
            return NotImplemented
        return Cost(self.bytes + other.bytes, self.flops + other.flops)

    def times(self, count: int) -> Cost:
        """Return the cost of doing this ``count`` times."""
        return Cost(count * self.bytes, count * self.flops)


@dataclass(frozen=True)
class Sizes:
    """What the cost of an epoch depends on."""

    nodes: int
    features: int
    hidden: int
    classes: int
    nnz_x: int
    nnz_a: int

    @classmethod
    def of(cls, graph: Graph, settings: Settings) -> Sizes:
        """Return the sizes of a graph and a model."""
        return cls(
            graph.num_nodes,
            graph.num_features,
            settings.hidden,
            graph.num_classes,
            graph.features.nnz,
            graph.propagation.nnz,
        )

    @property
    def narrow(self) -> int:
        """w, the width on which the second layer applies Â."""
        return min(self.hidden, self.classes)


@dataclass(frozen=True)
class Counts:
    """How often an epoch performs each of its parts."""

    project: int = 2
    collect: int = 1
    forward: int = 2
    backward: int = 1
    weights: int = 1
    softmax: int = 0
    effect: int = 0
    """Products (N, H) x (H, H)."""
    search_adam: int = 0
    search_scale: int = 0
    factor: int = 0
    """W0ᵀ W0, and the gradient of W0 through the perturbation."""

    def products(self) -> dict[str, int]:
        """Return how many sparse products of each kind these parts contain."""
        passes = self.forward + self.backward
        return {"a_hidden": passes, "a_narrow": passes, "x": self.project, "xt": self.collect}


def counts_of(settings: Settings) -> Counts | None:
    """Return how often an epoch of a two-layer GCN performs each part; None if that is unknown."""
    if settings.model != "gcn" or settings.layers != 2 or settings.samples > 1:
        return None
    if settings.method == "none" or not settings.beta:
        return Counts(softmax=1 if settings.alpha else 0)
    steps = getattr(settings, "steps", 0)
    searched = {"consistency": 0, "random": 0, "vat": steps, "obvat": steps}
    if settings.method not in searched:
        return None
    gradients = searched[settings.method]
    own = {"fresh": gradients + 1, "pair": 1}.get(settings.masks, 0)
    perturbed = settings.method != "consistency"
    adam = settings.method == "obvat" and settings.search == "adam"
    return Counts(
        project=2 + own,
        collect=2 if own else 1,
        forward=3 + gradients,
        backward=2 + gradients,
        weights=2,
        softmax=(2 if settings.alpha else 1) + gradients + 1,
        effect=2 * gradients + int(perturbed),
        search_adam=gradients if adam else 0,
        search_scale=0 if adam else gradients,
        factor=int(perturbed),
    )


def cost_of(s: Sizes, counts: Counts) -> Cost:
    """Return the bytes and flops of an epoch by the formulas above."""
    n, d, h, c = s.nodes, s.features, s.hidden, s.classes
    wide, narrow = sparse(n, n, s.nnz_a, h), sparse(n, n, s.nnz_a, s.narrow)
    parts = [
        (counts.project, sparse(n, d, s.nnz_x, h)),
        (counts.collect, sparse(d, n, s.nnz_x, h)),
        (counts.forward, wide + dense(n, h, c) + narrow),
        (counts.backward, narrow + dense(n, c, h) + wide),
        (counts.weights, dense(h, n, c)),
        (counts.softmax, Cost(8 * n * c, 5 * n * c)),
        (counts.effect, dense(n, h, h)),
        (counts.search_adam, adam(n * h)),
        (counts.search_scale, Cost(8 * n * h, 3 * n * h)),
        (counts.factor, dense(h, d, h) + dense(d, h, h)),
        (1, adam(d * h + h * c)),
    ]
    total = Cost(0, 0)
    for count, part in parts:
        total = total + part.times(count)
    return total


def sparse(rows: int, columns: int, stored: int, width: int) -> Cost:
    """Return the cost of a sparse (rows, columns) matrix times a dense (columns, width) one."""
    return Cost(8 * stored + 4 * (rows + 1) + 4 * width * (rows + columns), 2 * stored * width)


def dense(n: int, k: int, m: int) -> Cost:
    """Return the cost of an (n, k) matrix times a (k, m) one."""
    return Cost(4 * (n * k + k * m + n * m), 2 * n * k * m)


def adam(entries: int) -> Cost:
    """Return the cost of Adam's step."""
    return Cost(28 * entries, 12 * entries)
