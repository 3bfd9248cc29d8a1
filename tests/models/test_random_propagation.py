"""Random propagation: the literal formula on N x D features, and what its parts promise."""

from __future__ import annotations

import pytest
import torch

import bvat
from bvat.errors import SettingsError
from bvat.models import RandomPropagation
from bvat.models.random_propagation import PropagationMasks, _Spread, spreading_weights

NODES, FEATURES, CLASSES, HIDDEN = 70, 30, 4, 6


@pytest.fixture(scope="module")
def graph() -> bvat.Graph:
    drawn = bvat.synthetic_graph(NODES, 150, FEATURES, CLASSES, words_per_node=6, train_per_class=3, seed=2)
    return drawn.to(dtype=torch.float64)


def build(**options: object) -> RandomPropagation:
    generator = torch.Generator().manual_seed(1)
    options = {"hidden": HIDDEN, "power_steps": 4, **options}
    model = RandomPropagation(FEATURES, CLASSES, generator=generator, **options).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.startswith("weights"):
                parameter.add_(torch.randn(parameter.shape, generator=generator))
    return model


@pytest.mark.parametrize("spread", ["pagerank", "mean"])
@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("hidden", [6, 16])  # widths that do not, and do, fill whole vectors
def test_a_pass_is_the_literal_formula(graph: bvat.Graph, spread: str, batch_norm: bool, hidden: int) -> None:
    """Masks on N x D features, propagation of all D columns, then the perceptron; and all gradients."""
    model = build(spread=spread, batch_norm=batch_norm, teleport=0.2, hidden=hidden).train()
    masks = model.draw_masks(graph, torch.Generator().manual_seed(3))
    assert masks is not None
    assert masks.nodes is not None
    assert masks.features is not None
    theta = torch.tensor([1.0] * 5 if spread == "mean" else [0.8**k for k in range(5)], dtype=torch.float64)
    theta = theta / theta.sum()
    a, x = graph.propagation.to_dense(), graph.features.to_dense()
    spread_features = sum(
        theta[k] * torch.linalg.matrix_power(a, k) @ (masks.nodes * x * masks.features) for k in range(5)
    )
    w0, w1 = model.weights
    state = torch.relu(
        (spread_features * model.columns if batch_norm else spread_features) @ w0 + model.biases[0]
    )
    if batch_norm:
        (norm,) = model.norms
        state = (state - state.mean(0)) / (state.var(0, unbiased=False) + 1e-5).sqrt()
        state = state * norm.weight + norm.bias
    expected = (state * masks.hidden[0]) @ w1 + model.biases[1]
    found = model(graph, masks)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    direction = torch.randn(NODES, CLASSES, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    parameters = list(model.parameters())
    gradients = [torch.autograd.grad((out * direction).sum(), parameters) for out in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("classes", [3, 7])
def test_compiled_normalisation_is_the_plain_one(training: bool, dtype: torch.dtype, classes: int) -> None:
    """Logits, all gradients and the running mean and variance, on more nodes than a block has."""
    graph = bvat.synthetic_graph(700, 1500, FEATURES, classes, words_per_node=6, train_per_class=3).to(
        dtype=dtype
    )
    found = []
    for data in (graph, graph.with_engine("tensor")):
        model = RandomPropagation(
            FEATURES, classes, hidden=32, batch_norm=True, generator=torch.Generator().manual_seed(1)
        ).to(dtype)
        masks = model.train().draw_masks(graph, torch.Generator().manual_seed(5))
        model.train(training)
        logits = model(data, masks)
        logits.square().mean().backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        found.append([logits, *gradients, *[buffer.to(dtype) for buffer in model.buffers()]])
    close = {"rtol": 1e-9, "atol": 1e-11} if dtype == torch.float64 else {"rtol": 1e-3, "atol": 1e-5}
    torch.testing.assert_close(*found, **close)


def test_nothing_is_dropped_when_predicting(graph: bvat.Graph) -> None:
    model = build().eval()
    a, x = graph.propagation.to_dense(), graph.features.to_dense()
    first, ratio = spreading_weights("pagerank", 4, 0.1)
    spread = sum(first * ratio**k * torch.linalg.matrix_power(a, k) @ x for k in range(5))
    expected = torch.relu(spread @ model.weights[0] + model.biases[0]) @ model.weights[1] + model.biases[1]
    torch.testing.assert_close(model(graph), expected, rtol=1e-10, atol=1e-12)


def test_half_of_the_nodes_and_columns_are_dropped_and_the_expectation_is_kept(graph: bvat.Graph) -> None:
    model, generator = build(node_dropout=0.5, input_dropout=0.25).train(), torch.Generator().manual_seed(0)
    drawn = [model.draw_masks(graph, generator) for _ in range(400)]
    nodes = torch.stack([masks.nodes for masks in drawn])  # type: ignore[union-attr]
    columns = torch.stack([masks.features for masks in drawn])  # type: ignore[union-attr]
    assert set(nodes.unique().tolist()) == {0.0, 2.0}
    assert columns.shape == (400, FEATURES)
    assert abs(float((nodes == 0).double().mean()) - 0.5) < 0.02
    assert abs(float((columns == 0).double().mean()) - 0.25) < 0.02
    assert abs(float(columns.mean()) - 1) < 0.02


def test_weights_of_the_steps_sum_to_one() -> None:
    assert spreading_weights("mean", 2, 0.1) == pytest.approx((1 / 3, 1))
    first, ratio = spreading_weights("pagerank", 10, 0.1)
    assert ratio == 0.9
    assert sum(first * ratio**k for k in range(11)) == pytest.approx(1)


@pytest.mark.parametrize("engine", ["tensor", "compiled"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_the_sum_of_powers_and_its_gradient(
    graph: bvat.Graph, steps: int, dtype: torch.dtype, engine: str
) -> None:
    """Also of a matrix that is not symmetric, which is transposed in the backward pass."""
    part = graph.to(dtype=dtype).with_engine(engine).propagation
    values = torch.rand_like(part.values)
    matrix = bvat.engine.sparse.SparseMatrix(part.crow, part.col, values, part.shape, part.engine)
    start, weights = torch.randn(2, NODES, 3, dtype=dtype)
    start.requires_grad_()
    found = _Spread.apply(matrix, 0.9, steps, start)
    powers = sum(torch.linalg.matrix_power(0.9 * matrix.to_dense(), k) for k in range(steps + 1))
    torch.testing.assert_close(found, powers @ start)
    (gradient,) = torch.autograd.grad((found * weights).sum(), start)
    torch.testing.assert_close(gradient, powers.t() @ weights)


def test_reused_projection_leaves_the_column_mask_as_it_was(graph: bvat.Graph) -> None:
    masks = build().train().draw_masks(graph, torch.Generator().manual_seed(1), features=False)
    assert isinstance(masks, PropagationMasks)
    assert masks.features is None
    assert masks.nodes is not None


@pytest.mark.parametrize(
    "wrong",
    [{"power_steps": -1}, {"teleport": 1.5}, {"spread": "x"}, {"node_dropout": 1.0}, {"input_dropout": -0.1}],
)
def test_wrong_arguments_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        build(**wrong)
