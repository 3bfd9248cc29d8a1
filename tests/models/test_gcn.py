"""GCN against its formula, its gradients against finite differences, and dropout masks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bvat.engine.draws import Draws
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.models import GCN, Masks, ProjectedModel, linearize
from bvat.models.layered import glorot
from core_helpers import gradients, make_gcn, seeded

MODES = [(layers, dropout) for layers in (1, 2, 3) for dropout in (0.0, 0.5)]


@pytest.fixture(scope="module")
def tiny(make_graph: Callable[..., Graph]) -> Graph:
    return make_graph(nodes=12, features=6, edges=10, seed=2).to(dtype=torch.float64)


def reference(model: GCN, graph: Graph, masks: Masks | None) -> Tensor:
    """The formula of the paper, dense and by autograd."""
    a = graph.propagation.to_dense()
    x = graph.features.to_dense()
    if masks is not None:
        mask = masks.features
        assert mask is not None
        x = graph.features.with_values(graph.features.values * mask).to_dense()
    state = a @ x @ model.weights[0]
    for layer, weight in enumerate(list(model.weights)[1:]):
        state = state.relu()
        if masks is not None:
            state = state * masks.hidden[layer]
        state = a @ state @ weight
    return state


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize(("layers", "dropout"), MODES)
def test_logits_and_gradients_equal_the_formula(
    make_graph: Callable[..., Graph], layers: int, dropout: float, dense: bool
) -> None:
    graph = make_graph(dense=dense).to(dtype=torch.float64)
    model = make_gcn(graph, layers=layers, dropout=dropout)
    masks = model.draw_masks(graph, seeded())
    assert (masks is None) == (dropout == 0)
    ours, theirs = model(graph, masks), reference(model, graph, masks)
    assert model.depth == layers
    assert torch.allclose(ours, theirs, atol=1e-12)
    weigh = torch.randn_like(ours)
    ours, theirs = (gradients((logits * weigh).sum(), model) for logits in (ours, theirs))
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(("layers", "dropout"), MODES)
def test_gradients_against_finite_differences(tiny: Graph, layers: int, dropout: float) -> None:
    model = make_gcn(tiny, layers=layers, dropout=dropout, hidden=3)
    masks = model.draw_masks(tiny, seeded())
    projected = model.project(tiny, masks).detach().requires_grad_()

    def whole(*weights: Tensor) -> Tensor:
        named = {f"weights.{k}": weight for k, weight in enumerate(weights)}
        logits: Tensor = torch.func.functional_call(model, named, (tiny, masks))
        return logits

    assert torch.autograd.gradcheck(lambda p: model.propagate(tiny, p, masks), projected)
    assert torch.autograd.gradcheck(
        whole, tuple(weight.detach().clone().requires_grad_() for weight in model.weights)
    )


@pytest.mark.parametrize(("layers", "dropout"), MODES)
def test_closed_form_equals_the_autograd_fallback(graph64: Graph, layers: int, dropout: float) -> None:
    model = make_gcn(graph64, layers=layers, dropout=dropout)
    masks = model.draw_masks(graph64, seeded())
    projected = model.project(graph64, masks).detach()

    class Plain:
        """Offers the protocol only, so that ``linearize`` has to use autograd."""

        def propagate(self, inputs: Graph, projected: Tensor, masks: Masks | None) -> Tensor:
            state = inputs.propagation @ projected
            for layer, weight in enumerate(list(model.weights)[1:]):
                state = state.relu() if masks is None else state.relu() * masks.hidden[layer]
                state = inputs.propagation @ (state @ weight)
            return state

    before = projected.clone()
    logits, pullback = linearize(model, graph64, projected, masks)
    plain_logits, plain_pullback = linearize(Plain(), graph64, projected, masks)  # type: ignore[arg-type]
    assert torch.allclose(logits, plain_logits, atol=1e-12)
    assert not plain_logits.requires_grad
    grad = torch.randn_like(logits)
    kept = grad.clone()
    assert torch.allclose(pullback(grad), plain_pullback(grad), atol=1e-12)
    assert torch.allclose(pullback(2 * grad), 2 * pullback(grad)), "a pullback can be used again"
    assert torch.equal(grad, kept)
    assert torch.equal(projected, before)
    assert all(weight.grad is None for weight in model.weights)


def test_gradient_of_a_sum_arrives_as_an_expanded_tensor(graph64: Graph) -> None:
    model = make_gcn(graph64)
    ours, theirs = (
        gradients(model(graph64).sum(), model),
        gradients(reference(model, graph64, None).sum(), model),
    )
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(ours, theirs, strict=True))


def test_backward_twice_gives_the_same(graph64: Graph) -> None:
    """The backward pass must not change what the forward pass kept."""
    model = make_gcn(graph64, dropout=0.5)
    loss = model(graph64, generator=seeded()).pow(2).sum()
    assert all(torch.equal(a, b) for a, b in zip(gradients(loss, model), gradients(loss, model), strict=True))


def test_weights_changed_before_the_backward_pass_are_noticed(graph: Graph) -> None:
    model = make_gcn(graph)
    loss = model(graph).sum()
    with torch.no_grad():
        model.weights[1].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_second_derivatives_are_refused_rather_than_wrong(graph: Graph) -> None:
    model = make_gcn(graph)
    first = torch.autograd.grad(model(graph).pow(2).sum(), model.weights[1], create_graph=True)[0]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_a_pass_whose_shapes_do_not_match_is_refused(graph: Graph) -> None:
    model = make_gcn(graph)
    for rows, width in ((30, 5), (50, 5), (40, 21), (40, 3)):
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            model.propagate(graph, torch.ones(rows, width))
    with pytest.raises(RuntimeError, match="dtype"):
        model.propagate(graph.to(dtype=torch.float64), torch.ones(40, 5))
    with pytest.raises(RuntimeError, match="size of tensor"):
        model.propagate(graph, torch.ones(40, 5), Masks(None, (torch.ones(20, 5),), 2.0))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("layer", [0, 1])
def test_numbers_that_are_not_finite_are_not_hidden(graph: Graph, layer: int, value: float) -> None:
    """A relu that turned NaN into 0 would hide from the training loop that it diverged."""
    model = make_gcn(graph)
    with torch.no_grad():
        model.weights[layer][0, 0] = value
    assert not model(graph).isfinite().all()


def test_masks_of_a_subgraph(graph64: Graph) -> None:
    """Restricted masks applied to the rows of a part are the masks of the whole, row by row."""
    model = make_gcn(graph64, dropout=0.5)
    masks = model.draw_masks(graph64, seeded())
    nodes = torch.tensor([1, 4, 8, 9, 30])
    part = graph64.induced(nodes)
    restricted = model.restrict_masks(masks, graph64, nodes)
    assert torch.allclose(model.project(part, restricted), model.project(graph64, masks)[nodes])
    assert masks is not None
    assert restricted is not None
    assert torch.equal(restricted.hidden[0], masks.hidden[0][nodes])
    assert model.restrict_masks(None, graph64, nodes) is None


def test_masks_only_in_training_mode(graph: Graph) -> None:
    model = make_gcn(graph, dropout=0.5)
    masks = model.draw_masks(graph, seeded())
    assert masks is not None
    assert masks.features is not None
    assert masks.features.shape == (graph.features.nnz,)  # type: ignore[union-attr]
    assert masks.hidden[0].shape == (graph.num_nodes, 5)
    assert model.eval().draw_masks(graph, seeded()) is None
    assert torch.equal(model(graph), model(graph))
    assert isinstance(model, ProjectedModel)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_mask(rate: float) -> None:
    """Rate, expectation 1, and no tie between neighbours, which come from one 64-bit word."""
    mask = Draws(seeded(3)).dropout_mask((400_001,), rate, torch.zeros(1, dtype=torch.float64))
    kept = mask > 0
    deviation = (rate * (1 - rate) / mask.numel()) ** 0.5
    assert abs(float((~kept).double().mean()) - rate) < 4 * deviation + 2**-16
    assert float(mask[kept].min()) == float(mask[kept].max()) == pytest.approx(1 / (1 - rate), rel=2e-4)
    assert abs(float(mask.mean()) - 1) < 4 * deviation / (1 - rate)
    for lag in (1, 2, 3, 4):
        centred = kept.double() - kept.double().mean()
        correlation = (centred[lag:] * centred[:-lag]).mean() / (rate * (1 - rate))
        assert abs(float(correlation)) < 4 / mask.numel() ** 0.5
    for place in range(4):  # each quarter of a word has the same rate
        assert abs(float((~kept[place::4]).double().mean()) - rate) < 8 * deviation + 2**-16


def test_expectation_of_a_mask_is_exactly_one_whatever_the_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Feed every 16-bit number once: then the mean of the mask is its expectation."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.int64)

    def fill(words: Tensor, *args: object, generator: torch.Generator | None = None) -> Tensor:
        return words.copy_(every)

    monkeypatch.setattr(Tensor, "random_", fill)
    for rate in (1e-6, 0.1, 0.3, 0.5, 0.9, 1 - 1e-9):
        mask = Draws(seeded()).dropout_mask((2**16,), rate, torch.zeros(1, dtype=torch.float64))
        assert float(mask.mean()) == pytest.approx(1, abs=1e-12)
        assert abs(float((mask == 0).double().mean()) - rate) <= 2**-16


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8])
def test_coarse_dropout_mask(rate: float, dtype: torch.dtype) -> None:
    """Its rate is the nearest multiple of 1/256, its expectation 1."""
    like = torch.zeros(1, dtype=dtype)
    mask = Draws(seeded(3)).coarse_mask((300, 501), rate, like)
    level = round(256 * rate) / 256
    deviation = (level * (1 - level) / mask.numel()) ** 0.5
    assert abs(float((mask == 0).double().mean()) - level) < 4 * deviation
    assert float(mask[mask > 0].min()) == float(mask.max()) == pytest.approx(1 / (1 - level), rel=1e-6)


def test_masks_follow_their_generator() -> None:
    like = torch.zeros(1)
    one, again = (Draws(seeded(1)).dropout_mask((50, 3), 0.5, like) for _ in range(2))
    other = Draws(seeded(2)).dropout_mask((50, 3), 0.5, like)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert Draws(seeded(1)).dropout_mask((0, 3), 0.5, like).shape == (0, 3)


def test_glorot() -> None:
    weight = glorot(300, 100, seeded()).detach()
    bound = (6 / 400) ** 0.5
    assert 0.99 * bound < float(weight.abs().max()) <= bound
    assert float(weight.std()) == pytest.approx(bound / 3**0.5, rel=0.02)
    assert torch.equal(weight, glorot(300, 100, seeded()))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": 0}, "layers must be at least 1"),
        ({"hidden": 0}, "hidden must be at least 1"),
        ({"dropout": 1.0}, "below 1, not 1.0"),
        ({"dropout": -0.1}, "at least 0"),
        ({"dropout": float("nan")}, "not nan"),
    ],
)
def test_bad_settings(settings: dict[str, float], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        GCN(4, 2, **settings)  # type: ignore[arg-type]
