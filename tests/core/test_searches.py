"""Searches: the same path in every space, Adam against torch's own, precision, lengths."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from core_helpers import Recorder, coordinates, cosine, gradients, lds, make_gcn, seeded
from torch import Tensor

from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.models import GCN
from bvat.perturb import (
    KL,
    AdamAscent,
    AllNodes,
    DisjointFields,
    NoSearch,
    PowerIteration,
    RandomDirection,
    Regulariser,
    SquaredError,
)
from bvat.perturb.searches import Problem
from bvat.perturb.spaces import DenseSpace


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
        search=recorder,
        space=space,
        dropout="shared" if shared else "fresh",
        generator=seeded(11),
        **options,
    )
    outcome = regulariser(model, graph, model(graph, masks), masks)
    return recorder, outcome.loss


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


@pytest.mark.parametrize("name", ["dense", "sparse", "factored"])
def test_kept_moments_survive_a_round_trip(graph: Graph, name: Any) -> None:
    """Five calls in one go, or three, state_dict, two more: the same bits."""
    model = make_gcn(graph, dropout=0.5)

    def calls(search: AdamAscent, generator: torch.Generator, times: int) -> list[Tensor]:
        masks = model.draw_masks(graph, seeded())
        recorder = Recorder(search)
        regulariser = Regulariser(search=recorder, space=name, generator=generator)
        found = []
        for _ in range(times):
            regulariser(model, graph, model(graph, masks))
            assert recorder.found is not None
            found.append(recorder.found.r.clone())
        return found

    whole = calls(AdamAscent(3, keep_moments=True), seeded(5), 5)
    generator, search = seeded(5), AdamAscent(3, keep_moments=True)
    first = calls(search, generator, 3)
    state = search.state_dict()
    kept = {key: tensor.clone() for key, tensor in state.items()}
    calls(search, seeded(9), 1)  # going on must not change the state that was taken
    assert all(torch.equal(state[key], kept[key]) for key in kept)
    fresh = AdamAscent(3, keep_moments=True)
    fresh.load_state_dict(state)
    second = calls(fresh, generator, 2)
    assert all(torch.equal(a, b) for a, b in zip(whole, first + second, strict=True))
    without = calls(AdamAscent(3, keep_moments=True), seeded(5), 4)[3]
    assert torch.equal(without, whole[3])
    reset = calls(AdamAscent(3), seeded(5), 4)[3]
    assert not torch.equal(reset, whole[3])
    assert AdamAscent().state_dict() == {}


def test_kept_moments_take_the_precision_of_the_model(graph: Graph, graph64: Graph) -> None:
    search = AdamAscent(2, keep_moments=True)
    run(graph, make_gcn(graph), search, "factored")
    recorder, _ = run(graph64, make_gcn(graph64), search, "factored")
    assert recorder.found is not None
    assert recorder.found.r.dtype == torch.float64


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


@pytest.mark.parametrize("search", [RandomDirection(0.3), PowerIteration(0.3, 0), PowerIteration(0.3, 2)])
@pytest.mark.parametrize("name", ["dense", "sparse", "factored"])
def test_rows_have_length_epsilon(graph: Graph, search: Any, name: Any) -> None:
    recorder, _ = run(graph, make_gcn(graph, dropout=0.5), search, name)
    assert recorder.found is not None
    lengths = recorder.found.row_squares.sqrt()
    assert bool((lengths <= 0.3 * (1 + 1e-5)).all())
    assert float(lengths.max()) == pytest.approx(0.3, rel=1e-4)
    assert bool((recorder.dense.norm(dim=1) <= 0.3 * (1 + 1e-4)).all())


@pytest.mark.parametrize("search", [RandomDirection(0.3, "field"), PowerIteration(0.3, 2, norm="field")])
@pytest.mark.parametrize("name", ["dense", "sparse", "factored"])
def test_fields_have_length_epsilon(graph64: Graph, search: Any, name: Any) -> None:
    recorder, _ = run(graph64, make_gcn(graph64, dropout=0.5), search, name, nodes=DisjointFields(3))
    problem, found = recorder.problem, recorder.found
    assert problem is not None
    assert problem.owner is not None
    assert found is not None
    for chosen in range(int(problem.owner.max()) + 1):
        inside = problem.owner == chosen
        length = float(found.row_squares[inside].sum().sqrt())
        assert length == pytest.approx(0.3, rel=1e-5)
        assert float(recorder.dense[inside].norm()) <= 0.3 * (1 + 1e-6)


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


def test_no_search(graph: Graph) -> None:
    recorder, loss = run(graph, make_gcn(graph), NoSearch(), "auto")
    assert recorder.found is None
    assert float(loss.detach()) == 0


BAD = [
    (RandomDirection, {"epsilon": -0.1}, "epsilon must be finite and not negative, not -0.1"),
    (RandomDirection, {"epsilon": math.nan}, "not nan"),
    (RandomDirection, {"epsilon": math.inf}, "not inf"),
    (RandomDirection, {"norm": "column"}, "norm must be row or field, not 'column'"),
    (PowerIteration, {"epsilon": -1.0}, "epsilon must be finite"),
    (PowerIteration, {"steps": -1}, "steps must not be negative, not -1"),
    (PowerIteration, {"xi": 0.0}, "xi must be positive, not 0.0"),
    (PowerIteration, {"xi": math.inf}, "xi must be positive, not inf"),
    (PowerIteration, {"norm": "rows"}, "norm must be row or field"),
    (AdamAscent, {"steps": -1}, "steps must not be negative"),
    (AdamAscent, {"step_size": 0.0}, "step_size must be positive"),
    (AdamAscent, {"step_size": math.nan}, "step_size must be positive"),
    (AdamAscent, {"gamma": -1.0}, "gamma must be finite and not negative"),
    (AdamAscent, {"start": -1.0}, "start must be finite and not negative"),
    (AdamAscent, {"second_moment": "column"}, "second_moment must be entry or row, not 'column'"),
    (AdamAscent, {"reduction": "max"}, "reduction must be sum or mean, not 'max'"),
]


@pytest.mark.parametrize(("search", "settings", "message"), BAD)
def test_bad_settings(search: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        search(**settings)


def test_field_norm_needs_fields(graph: Graph) -> None:
    with pytest.raises(SettingsError, match="needs disjoint receptive fields"):
        run(graph, make_gcn(graph), PowerIteration(norm="field"), "factored")
