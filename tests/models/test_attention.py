"""What GAT and MoNet share, and how GAT drops."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import bvat
from bvat.engine.attention import edge_softmax
from bvat.engine.cpu import CompiledEngine
from bvat.engine.tensor import TensorEngine
from bvat.errors import SettingsError
from bvat.models import GAT, MoNet
from bvat.training.settings import Settings


def assert_compiled_is_plain(
    function: Callable[[TensorEngine], torch.Tensor], inputs: list[torch.Tensor], way: torch.Tensor
) -> None:
    """The result and its gradients along ``way`` are those of the tensor operations."""

    def outcome(engine: TensorEngine) -> list[torch.Tensor]:
        found = function(engine)
        return [found, *torch.autograd.grad((found * way).sum(), inputs)]

    torch.testing.assert_close(outcome(CompiledEngine()), outcome(TensorEngine()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("heads", "width"), [(1, 7), (8, 8), (3, 16), (2, 1), (2, 0)])
def test_compiled_gradients_are_those_of_tensor_operations(
    graph: bvat.Graph, dtype: torch.dtype, heads: int, width: int
) -> None:
    pattern, generator = graph.propagation.to(dtype=dtype), torch.Generator().manual_seed(0)
    alpha = torch.randn(pattern.nnz, heads, dtype=dtype, generator=generator).requires_grad_()
    h = torch.randn(40, heads, width, dtype=dtype, generator=generator).requires_grad_()
    way = torch.randn(40, heads, width, dtype=dtype, generator=generator)

    def attended(engine: TensorEngine) -> torch.Tensor:
        return engine.attend(pattern.with_engine(engine), alpha, h)

    assert_compiled_is_plain(attended, [alpha, h], way)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("heads", "width"), [(1, 7), (8, 8), (2, 1), (2, 0)])
@pytest.mark.parametrize("dropped", [False, True])
def test_compiled_attention_is_that_of_tensor_operations(
    graph: bvat.Graph, dtype: torch.dtype, heads: int, width: int, dropped: bool
) -> None:
    pattern, generator = graph.propagation.to(dtype=dtype), torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return (3 * torch.randn(shape, dtype=dtype, generator=generator)).requires_grad_()

    inputs = [drawn(40, heads), drawn(40, heads), drawn(40, heads, width)]
    mask = (drawn(pattern.nnz, heads) > 0).to(dtype) * 2 if dropped else None
    way = drawn(40, heads, width).detach()

    assert_compiled_is_plain(lambda e: e.attention(pattern, *inputs, mask), inputs, way)


def test_edge_softmax_is_softmax_of_each_row(graph64: bvat.Graph) -> None:
    pattern = graph64.propagation
    scores = (100 * torch.randn(pattern.nnz, 2, dtype=torch.float64)).requires_grad_()
    whole = torch.full((40, 40, 2), -torch.inf, dtype=torch.float64)
    whole[pattern.rows, pattern.col.long()] = scores
    expected = torch.softmax(whole, 1)[pattern.rows, pattern.col.long()]
    found = edge_softmax(pattern, scores)
    torch.testing.assert_close(found, expected)
    way = torch.randn(pattern.nnz, 2, dtype=torch.float64)
    torch.testing.assert_close(
        torch.autograd.grad((found * way).sum(), scores), torch.autograd.grad((expected * way).sum(), scores)
    )


def test_every_head_of_gat_has_its_own_masks(graph64: bvat.Graph) -> None:
    model = GAT(graph64.num_features, 3, hidden=8, heads=4, output_heads=2, dropout=0.5).double().train()
    masks = model.draw_masks(graph64, torch.Generator().manual_seed(0))
    assert masks.features.shape == (graph64.features.nnz, 4)
    assert [mask.shape[1] for mask in masks.hidden] == [2 * 8, 8, 2 * 3]  # inputs, then projections
    assert [mask.shape[1] for mask in masks.edges] == [4, 2]
    first, second = masks.features[:, 0], masks.features[:, 1]
    assert not torch.equal(first, second)
    x = graph64.features.with_values(graph64.features.values * second).to_dense()
    projected = model.project(graph64, masks)
    torch.testing.assert_close(projected[:, 2:4], x @ model.projection()[:, 2:4])


def test_dropping_a_projection_leaves_the_attention_alone(graph64: bvat.Graph) -> None:
    """With a mask of ones but for a factor 2 on the projections, only the sums double."""
    model = GAT(graph64.num_features, 3, layers=1, dropout=0.5).double().train()
    masks = model.draw_masks(graph64, torch.Generator().manual_seed(0))
    ones = [torch.ones_like(part) for part in (masks.features, masks.hidden[0], masks.edges[0])]
    doubled = type(masks)(ones[0], (2 * ones[1],), 1.0, (ones[2],))
    torch.testing.assert_close(model(graph64, doubled), 2 * model.eval()(graph64))


def test_no_output_heads_and_no_kernels_are_refused() -> None:
    with pytest.raises(SettingsError, match="output_heads must be at least 1"):
        GAT(10, 2, output_heads=0)
    with pytest.raises(SettingsError, match="kernels must be at least 1"):
        MoNet(10, 2, kernels=0)
    with pytest.raises(SettingsError, match="aggregation must be"):
        MoNet(10, 2, aggregation="max")


@pytest.mark.parametrize(("model", "method"), [("gat", "obvat"), ("monet", "vat"), ("gpnn", "sbvat")])
def test_models_train_with_a_regulariser(graph: bvat.Graph, model: str, method: str) -> None:
    sizes = {"hidden": 8, "epochs": 8, "dropout": 0.3, "steps": 2}
    own = {"monet": {"kernels": 2}, "gpnn": {"count": 3}}.get(model, {})
    settings = Settings(model=model, method=method, **sizes, **own)
    first, second = (bvat.train(graph, settings, seed=1) for _ in range(2))
    assert first.space == "factored"
    assert all(row["r_vadv"] > 0 for row in first.metrics)
    assert [row["loss"] for row in first.metrics] == [row["loss"] for row in second.metrics]
