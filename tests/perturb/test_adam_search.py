"""Adam's search: against torch's own Adam, in every space, its moments and reductions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bvat.graph import Graph
from bvat.models import GCN
from bvat.perturb import (
    AdamAscent,
    NoSearch,
)
from bvat.perturb.problem import Problem
from core_helpers import coordinates, lds, make_gcn
from search_helpers import run, start_of


def objective(problem: Problem, r: Tensor, gamma: float) -> float:
    """Eq. 10 with the KL summed over the nodes."""
    value, _ = lds(problem, r)
    return float(value.sum() - gamma * problem.space.row_squares(r).sum())


def concentrated(model: GCN) -> GCN:
    """Let one direction of W0 outweigh the others, as it does after training."""
    with torch.no_grad():
        left, values, right = torch.linalg.svd(model.weights[0], full_matrices=False)
        values[1:] *= 0.1
        model.weights[0].copy_(left @ values.diag() @ right)
    return model


@pytest.mark.parametrize("spread", [True, False], ids=["spread", "concentrated"])
@pytest.mark.parametrize("gamma", [1.0, 0.1])
@pytest.mark.parametrize("seed", [0, 1])
def test_factored_adam_reaches_the_objective_of_dense_adam(
    make_graph: Any, seed: int, gamma: float, spread: bool
) -> None:
    """Same start, same T, same step size: factored O-BVAT gets at least as far up Eq. 10 as dense O-BVAT.

    Adam is not invariant to rotation. In D coordinates its step has length step_size sqrt(D) and points,
    within the span of W0, nearly along the gradient; in H coordinates it has length step_size sqrt(H), and
    points along the signs of H coordinates, which is a poor direction where few of them matter. Scaling the
    step by sqrt(D/H) mends the first but not the second. With the second moment taken over rows of R both
    are gone: the step has the dense length and lies in the span altogether, and what the dense start spends
    on directions without effect is saved.
    """
    graph = make_graph(features=60).to(dtype=torch.float64)
    model = make_gcn(graph, hidden=8)
    if not spread:
        concentrated(model)
    for steps in (0, 1, 3, 10, 30):
        reached = {}
        for space, moment in (("dense", "entry"), ("factored", "row")):
            search = AdamAscent(steps, 0.003, gamma=gamma, start=0.01, second_moment=moment)  # type: ignore[arg-type]
            recorder, _ = run(graph, model, search, space, start=start_of(graph, seed))
            assert recorder.problem is not None
            assert recorder.found is not None
            reached[space] = objective(recorder.problem, recorder.found.r, gamma)
        assert reached["factored"] >= reached["dense"], f"T = {steps}"
    assert reached["factored"] > 1, "neither space climbed"


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


@pytest.mark.parametrize("keep", [False, True])
def test_adam_with_row_moments_takes_the_same_path_in_every_coordinates(graph64: Graph, keep: bool) -> None:
    model = make_gcn(graph64)
    factored, _ = run(graph64, model, NoSearch(), "factored")
    assert factored.problem is not None
    space = factored.problem.space
    start = space.to_dense(coordinates(space, start_of(graph64)))  # in the span of W0
    found = []
    for name in ("dense", "factored"):
        search = AdamAscent(7, 0.02, gamma=0.3, start=0.05, keep_moments=keep, second_moment="row")
        for _ in range(2):
            recorder, _ = run(graph64, model, search, name, start=start)
        found.append(recorder.dense)
    assert float(found[0].norm()) > 0.5
    assert torch.allclose(found[0], found[1], atol=1e-8)


@pytest.mark.parametrize("name", ["dense", "sparse", "factored"])
def test_first_step_of_adam_with_row_moments_has_the_length_of_a_step_of_adam(
    graph64: Graph, name: Any
) -> None:
    """The first step of Adam moves each of a row's entries by the step size."""
    search = AdamAscent(1, 0.02, gamma=0.0, start=0.0, second_moment="row")
    probe = run(graph64, make_gcn(graph64, dropout=0.5), search, name)[0]  # fresh masks: a gradient at R = 0
    assert probe.found is not None
    entries = torch.full((graph64.num_nodes,), float(graph64.num_features), dtype=torch.float64)
    if name == "sparse":
        entries = torch.diff(graph64.features.crow).double()  # type: ignore[union-attr]
    moved = probe.found.row_squares > 0
    assert int(moved.sum()) > 20
    assert torch.allclose(probe.found.row_squares[moved].sqrt(), 0.02 * entries[moved].sqrt(), rtol=1e-3)


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
