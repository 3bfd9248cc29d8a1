"""Searches: the same path in every space, precision, settings; the rest is in ``test_search_contract.py``."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.perturb import (
    KL,
    AdamAscent,
    AllNodes,
    DisjointFields,
    FastAscent,
    PowerIteration,
    RandomDirection,
    SquaredError,
)
from bvat.perturb.searches import SmallestFlip
from bvat.perturb.spaces import DenseSpace
from core_helpers import coordinates, cosine, gradients, lds, make_gcn, seeded
from search_helpers import rows_of, run, start_of


@pytest.mark.parametrize("shared", [False, True], ids=["no dropout", "fixed masks"])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("selection", ["all", "row", "field"])
def test_power_iteration_factored_equals_dense(
    graph64: Graph, selection: str, steps: int, shared: bool
) -> None:
    """The perturbation, its lengths, the loss and the training gradients of W0 and W1."""
    model = make_gcn(graph64, dropout=0.5 if shared else 0.0)
    norm: Any = "field" if selection == "field" else "row"
    options = {} if selection == "all" else {"nodes": DisjointFields(3)}
    search = PowerIteration(epsilon=0.3, steps=steps, norm=norm)
    results = [
        run(graph64, model, search, space, start=start_of(graph64), shared=shared, **options)
        for space in ("dense", "factored")
    ]
    (dense, dense_loss), (factored, loss) = results
    assert dense.found is not None
    assert factored.found is not None
    assert torch.allclose(factored.dense, dense.dense, atol=1e-6)
    assert torch.allclose(factored.found.row_squares, dense.found.row_squares, atol=1e-7)
    assert torch.allclose(dense.dense.pow(2).sum(1), dense.found.row_squares, atol=1e-9)
    assert float(loss.detach()) > 1e-3
    assert torch.allclose(loss, dense_loss, atol=1e-7)
    for ours, theirs in zip(gradients(loss, model), gradients(dense_loss, model), strict=True):
        assert float(theirs.abs().max()) > 1e-3
        assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("name", ["dense", "factored"])
@pytest.mark.parametrize("nodes", [AllNodes(), DisjointFields(3)], ids=["all", "some"])
def test_gradient_of_the_objective_against_autograd(graph64: Graph, name: Any, nodes: Any) -> None:
    """What a search follows is the gradient of sum LDS with respect to R, as autograd sees it on dense R."""
    model = make_gcn(graph64, dropout=0.5)
    start = start_of(graph64)

    # after one step from zero moments Adam's first moment is 0.1 times the gradient, or minus that
    search = AdamAscent(1, gamma=0.0, start=0.2, keep_moments=True)
    recorder, _ = run(graph64, model, search, name, start=start, shared=True, nodes=nodes)
    problem = recorder.problem
    assert problem is not None
    value, gradient = lds(problem, coordinates(problem.space, 0.2 * rows_of(start, problem)))

    masks = model.draw_masks(graph64, seeded(3))
    leaf = (0.2 * start).requires_grad_()
    clean = model(graph64, masks).detach()
    logits = model.propagate(graph64, model.project(graph64, masks) + leaf @ model.projection(), masks)
    p = clean.log_softmax(1)
    each = (p.exp() * (p - logits.log_softmax(1))).sum(1)
    chosen = nodes.choose(graph64, model.depth, seeded(11)).chosen  # drawn first by ``run`` too, so alike
    if chosen is not None:
        each = each[chosen]
    each.sum().backward()
    assert torch.allclose(value, each.detach(), atol=1e-9)
    assert leaf.grad is not None
    expected = rows_of(leaf.grad, problem)
    assert torch.allclose(problem.space.to_dense(gradient), expected, atol=1e-9)
    if chosen is None:
        seen = problem.space.to_dense(search.state_dict()["first"] / 0.1)
        assert torch.allclose(seen, expected, atol=1e-9) or torch.allclose(-seen, expected, atol=1e-9)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("search", ["power", "adam"])
def test_sparse_equals_dense_restricted_to_the_pattern(graph64: Graph, steps: int, search: str) -> None:
    pattern = (graph64.features.to_dense() != 0).double()  # type: ignore[union-attr]

    class Restricted(DenseSpace):
        def pull(self, gradient: Tensor) -> Tensor:
            return super().pull(gradient) * pattern

    model = make_gcn(graph64)
    restricted = Restricted(model.projection(), tuple(pattern.shape), pattern)  # type: ignore[arg-type]
    inner: Any = PowerIteration(0.3, steps) if search == "power" else AdamAscent(steps, 0.05, start=0.1)
    start = start_of(graph64) * pattern
    dense, dense_loss = run(graph64, model, inner, "dense", start=start, given_space=restricted)
    sparse, loss = run(graph64, model, inner, "sparse", start=start)
    assert torch.equal(sparse.dense != 0, pattern != 0)
    assert torch.allclose(sparse.dense, dense.dense, atol=1e-8)
    # The dense training pass uses the regulariser's own dense space: R itself is what counts there.
    assert torch.allclose(loss, dense_loss, atol=1e-9)
    for ours, theirs in zip(gradients(loss, model), gradients(dense_loss, model), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-8)


@pytest.mark.parametrize("mode", ["eval", "shared masks", "rate 0 in training mode"])
@pytest.mark.parametrize("name", ["dense", "factored"])
def test_single_precision_finds_the_direction_of_double_precision(
    graph: Graph, graph64: Graph, mode: str, name: Any
) -> None:
    """xi = 1e-6 drowns in the rounding of single precision; the search has to probe further out by itself."""
    found = []
    for inputs, xi in ((graph, 1e-6), (graph64, 1e-7)):
        model = make_gcn(inputs, dropout=0.0 if mode == "rate 0 in training mode" else 0.5)
        if mode == "eval":
            model.eval()
        dtype = inputs.features.dtype
        search = PowerIteration(0.1, steps=1, xi=xi)
        shared = mode == "shared masks"
        recorder, _ = run(inputs, model, search, name, start=start_of(graph, dtype=dtype), shared=shared)
        found.append(recorder.dense)
    assert cosine(*found) > 0.99


def test_rows_without_gradient_stay_zero(graph64: Graph) -> None:
    """A row that no chosen node can see gets no perturbation instead of 0 / 0."""
    recorder, loss = run(graph64, make_gcn(graph64), PowerIteration(0.3), "factored", nodes=DisjointFields(1))
    assert recorder.found is not None
    assert recorder.problem is not None
    assert bool(torch.isfinite(recorder.found.r).all())
    assert bool(torch.isfinite(loss))
    zero = torch.zeros(graph64.num_nodes, dtype=torch.float64)
    dead = make_gcn(graph64)
    with torch.no_grad():
        dead.weights[1].zero_()
    recorder, loss = run(graph64, dead, PowerIteration(0.3), "factored")
    assert recorder.found is not None
    assert torch.equal(recorder.found.row_squares, zero)
    assert float(loss.detach()) == 0


def test_tiny_gradients_do_not_underflow(graph: Graph) -> None:
    """The squares of gradients around 1e-25 are zero in single precision; directions must survive that."""
    model = make_gcn(graph)
    with torch.no_grad():
        model.weights[1].mul_(1e-9)
    recorder, _ = run(graph, model, PowerIteration(0.3, xi=1e-6), "factored", divergence=Shrunk())
    assert recorder.found is not None
    assert float(recorder.found.row_squares.max().sqrt()) == pytest.approx(0.3, rel=1e-3)


class Shrunk(KL):
    """KL with gradients near the smallest number of single precision."""

    def value_and_gradient(self, target: Any, logits: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = super().value_and_gradient(target, logits)
        return value, (gradient + 1e-3 * torch.ones_like(gradient).cumsum(1)) * 1e-20

    def gradient(self, target: Any, logits: Tensor) -> Tensor:
        return self.value_and_gradient(target, logits)[1]


def test_power_iteration_raises_the_divergence(graph64: Graph) -> None:
    """One iteration beats the random start, as in Fig. 1, for either divergence."""
    model = make_gcn(graph64)
    for divergence in (KL(), SquaredError()):
        losses = []
        for steps in (0, 1, 5):
            search = PowerIteration(0.2, steps)
            start = start_of(graph64)
            loss = run(graph64, model, search, "factored", start=start, divergence=divergence)[1]
            losses.append(float(loss.detach()))
        assert losses[1] > 1.5 * losses[0]
        assert losses[2] > 0.9 * losses[1]


BAD = [
    (RandomDirection, {"epsilon": -0.1}, "epsilon must be at least 0, not -0.1"),
    (RandomDirection, {"epsilon": math.nan}, "not nan"),
    (RandomDirection, {"epsilon": math.inf}, "not inf"),
    (RandomDirection, {"norm": "column"}, "norm must be one of row, field, not 'column'"),
    (PowerIteration, {"epsilon": -1.0}, "epsilon must be at least 0"),
    (PowerIteration, {"steps": -1}, "steps must be at least 0, not -1"),
    (PowerIteration, {"xi": 0.0}, "xi must be above 0, not 0.0"),
    (PowerIteration, {"xi": math.inf}, "xi must be a finite number, not inf"),
    (PowerIteration, {"norm": "rows"}, "norm must be one of row, field"),
    (AdamAscent, {"steps": -1}, "steps must be at least 0"),
    (AdamAscent, {"step_size": 0.0}, "step_size must be above 0"),
    (AdamAscent, {"step_size": math.nan}, "step_size must be a finite number"),
    (AdamAscent, {"gamma": -1.0}, "gamma must be at least 0"),
    (AdamAscent, {"start": -1.0}, "start must be at least 0"),
    (AdamAscent, {"reduction": "max"}, "reduction must be one of sum, mean, not 'max'"),
    (FastAscent, {"epsilon": math.nan}, "epsilon must be a finite number"),
    (FastAscent, {"steps": 0}, "steps must be at least 1, not 0"),
    (FastAscent, {"norm": "rows"}, "norm must be one of row, field"),
    (SmallestFlip, {"reach": -1.0}, "reach must not be negative, not -1.0"),
    (SmallestFlip, {"reach": math.nan}, "reach must not be negative, not nan"),
    (SmallestFlip, {"targets": 0}, "targets must be at least 1, not 0"),
    (SmallestFlip, {"steps": 0}, "steps must be at least 1, not 0"),
    (SmallestFlip, {"halvings": -1}, "halvings must not be negative, not -1"),
    (SmallestFlip, {"norm": "node"}, "the norm must be field or row, not 'node'"),
]


@pytest.mark.parametrize(("search", "settings", "message"), BAD)
def test_bad_settings(search: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        search(**settings)
