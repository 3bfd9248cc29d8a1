"""Models and searches that make the inside of a regulariser visible."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bvat.engine.tensor import with_gradient
from bvat.graph import Graph
from bvat.models import GCN
from bvat.perturb.problem import Found, Problem
from bvat.perturb.spaces import DenseSpace, FactoredSpace, SparseSpace


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_gcn(graph: Graph, *, layers: int = 2, hidden: int = 5, dropout: float = 0.0, seed: int = 1) -> GCN:
    """Return a GCN whose weights are large enough for predictions to differ from node to node."""
    model = GCN(
        graph.num_features,
        graph.num_classes,
        hidden=hidden,
        layers=layers,
        dropout=dropout,
        generator=seeded(seed),
    )
    with torch.no_grad():
        for weight in model.weights:
            weight.mul_(4)
    return model.to(graph.features.dtype)


def coordinates(space: Any, dense: Tensor) -> Tensor:
    """Return the coordinates of the part of R (N, D) that a space can hold."""
    if isinstance(space, DenseSpace):
        return dense.clone()
    if isinstance(space, SparseSpace):
        return dense[space.pattern.rows, space.pattern.col.long()].clone()
    assert isinstance(space, FactoredSpace)
    q = torch.linalg.solve_triangular(space.upper, space.weight.detach(), upper=True, left=False)
    return dense @ q


class Recorder:
    """A search that runs another one and keeps what it saw; ``start`` (N, D) replaces the Gaussian draw."""

    def __init__(self, inner: Any, start: Tensor | None = None, space: Any = None) -> None:
        self.inner, self.start, self.space = inner, start, space
        self.problem: Problem | None = None
        self.found: Found | None = None

    def find(self, problem: Problem, generator: torch.Generator | None) -> Found | None:
        if self.space is not None:
            object.__setattr__(problem, "space", self.space)
        if self.start is not None:
            nodes, space = getattr(problem.inputs, "nodes", None), problem.space  # of a part of the graph
            r = self.start if nodes is None else self.start[nodes]
            squares = (r * r).sum(1)
            space.draw = lambda generator: coordinates(space, r)  # type: ignore[method-assign]
            space.gaussian = lambda generator: (coordinates(space, r), squares)  # type: ignore[method-assign]
        self.problem = problem
        self.found = self.inner.find(problem, generator)
        return self.found

    @property
    def dense(self) -> Tensor:
        """R as found, (N, D)."""
        assert self.problem is not None
        assert self.found is not None
        return self.problem.space.to_dense(self.found.r)

    def state_dict(self) -> dict[str, Tensor]:
        return self.inner.state_dict()

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.inner.load_state_dict(state)


def lds(problem: Problem, r: Tensor) -> tuple[Tensor, Tensor]:
    """Return LDS of each chosen node (b) and the gradient of their sum with respect to r, by autograd."""
    masks, projected = problem.next_pass()
    effect = problem.space.effect(r.detach()).requires_grad_()
    logits = problem.model.propagate(problem.inputs, projected.detach() + effect, masks)
    at = logits if problem.rows is None else logits[problem.rows]
    value, gradient = problem.divergence.value_and_gradient(problem.clean, at)
    back = torch.autograd.grad(with_gradient(at, value.sum(), gradient), effect)[0]
    return value, problem.space.pull(back)


def gradients(loss: Tensor, model: GCN) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.weights), retain_graph=True))


def cosine(a: Tensor, b: Tensor) -> float:
    a, b = a.double().flatten(), b.double().flatten()
    return float(a @ b / (a.norm() * b.norm()))
