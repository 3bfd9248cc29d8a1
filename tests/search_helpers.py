"""Searches run inside a regulariser, from a start that is the same in every space."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bvat.graph import Graph
from bvat.models import GCN
from bvat.perturb import Regulariser
from bvat.perturb.problem import Problem
from core_helpers import Recorder, seeded


def start_of(graph: Graph, seed: int = 7, dtype: torch.dtype = torch.float64) -> Tensor:
    shape = (graph.num_nodes, graph.num_features)
    return torch.randn(shape, dtype=torch.float64, generator=seeded(seed)).to(dtype)


def rows_of(whole: Tensor, problem: Problem) -> Tensor:
    """Return the rows of (N, ...) that the perturbed passes see."""
    nodes = getattr(problem.inputs, "nodes", None)
    return whole if nodes is None else whole[nodes]


def run(
    graph: Graph,
    model: GCN,
    search: Any,
    space: Any,
    *,
    start: Tensor | None = None,
    shared: bool = False,
    given_space: Any = None,
    **options: Any,
) -> tuple[Recorder, Tensor]:
    """Run a search inside a regulariser; return what it found and the loss."""
    masks = model.draw_masks(graph, seeded(3)) if shared else None
    recorder = Recorder(search, start, given_space)
    regulariser = Regulariser(
        search=recorder, space=space, dropout="shared" if shared else "fresh", generator=seeded(11), **options
    )
    outcome = regulariser(model, graph, model(graph, masks, seeded(12)), masks)
    return recorder, outcome.loss
