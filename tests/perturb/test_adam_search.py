"""Adam's search: against torch's own Adam, in every space, its moments and reductions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bvat.graph import Graph
from bvat.perturb import AdamAscent, NoSearch
from bvat.perturb.problem import Problem
from core_helpers import coordinates, lds, make_gcn
from search_helpers import run, start_of


def objective(problem: Problem, r: Tensor, gamma: float) -> float:
    """Eq. 10 with the KL summed over the nodes."""
    value, _ = lds(problem, r)
    return float(value.sum() - gamma * problem.space.row_squares(r).sum())


def test_the_span_loses_nothing_of_the_objective(graph64: Graph) -> None:
    """Any dense R, here one that Adam found, has an image in the factored space that is at least as good."""
    model = make_gcn(graph64)
    dense, _ = run(graph64, model, AdamAscent(10, 0.01, gamma=0.5), "dense", start=start_of(graph64))
    factored, _ = run(graph64, model, NoSearch(), "factored")
    assert dense.problem is not None
    assert dense.found is not None
    assert factored.problem is not None
    z = coordinates(factored.problem.space, dense.found.r)
    ours, _ = lds(factored.problem, z)
    theirs, _ = lds(dense.problem, dense.found.r)
    assert torch.allclose(ours, theirs, atol=1e-9)
    assert objective(factored.problem, z, 0.5) > objective(dense.problem, dense.found.r, 0.5)


@pytest.mark.parametrize("name", ["dense", "sparse", "factored"])
def test_adam_is_adam(graph64: Graph, name: Any) -> None:
    """Against torch.optim.Adam on the same objective, moments reset and kept over three calls."""
    model = make_gcn(graph64)
    start = start_of(graph64)
    for keep in (False, True):
        search = AdamAscent(4, 0.02, gamma=0.1, start=0.05, keep_moments=keep)
        leaf: Tensor | None = None
        for _ in range(3):
            recorder, _ = run(graph64, model, search, name, start=start)
            problem, found = recorder.problem, recorder.found
            assert problem is not None
            assert found is not None
            if leaf is None or not keep:
                leaf = torch.zeros_like(found.r).requires_grad_()
                adam = torch.optim.Adam([leaf], lr=0.02, maximize=True)
            with torch.no_grad():
                leaf.copy_(0.05 * problem.space.gaussian(None)[0])
            for _ in range(4):
                _, gradient = lds(problem, leaf)
                leaf.grad = gradient - 0.2 * leaf.detach()
                adam.step()
            assert torch.allclose(found.r, leaf.detach(), atol=1e-10)


def test_adam_climbs_only_when_the_divergence_is_summed(graph64: Graph) -> None:
    """Eq. 10 as printed (mean) lets the penalty win: R shrinks; summed, R_vadv grows."""
    model = make_gcn(graph64)
    with torch.no_grad():
        for weight in model.weights:
            weight.div_(2)
    r_vadv, lengths = {}, {}
    for reduction in ("sum", "mean"):
        for steps in (0, 20):
            search = AdamAscent(steps, 0.003, gamma=0.3, start=0.05, reduction=reduction)  # type: ignore[arg-type]
            recorder, loss = run(graph64, model, search, "factored", start=start_of(graph64))
            assert recorder.found is not None
            r_vadv[reduction, steps] = float(loss.detach())
            lengths[reduction, steps] = float(recorder.found.row_squares.sum())
    assert r_vadv["sum", 20] > 2 * r_vadv["sum", 0]
    assert lengths["mean", 20] < lengths["mean", 0]
    assert r_vadv["sum", 0] == r_vadv["mean", 0]


def test_mean_reduction_divides_by_the_number_of_nodes(graph64: Graph) -> None:
    """Without a penalty Adam does not see a constant factor, so the gradient is looked at directly."""
    model = make_gcn(graph64)
    seen = {}
    for reduction in ("sum", "mean"):
        search = AdamAscent(1, 0.01, gamma=0.0, reduction=reduction, keep_moments=True)  # type: ignore[arg-type]
        run(graph64, model, search, "factored", start=start_of(graph64))
        seen[reduction] = search.state_dict()["first"]
    assert torch.allclose(seen["sum"], graph64.num_nodes * seen["mean"])


def test_kept_moments_take_the_precision_of_the_model(graph: Graph, graph64: Graph) -> None:
    search = AdamAscent(2, keep_moments=True)
    run(graph, make_gcn(graph), search, "factored")
    recorder, _ = run(graph64, make_gcn(graph64), search, "factored")
    assert recorder.found is not None
    assert recorder.found.r.dtype == torch.float64
