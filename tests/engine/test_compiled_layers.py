"""The compiled layers of a GCN and their gradients against plain torch and finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.multiprocessing  # its import teaches ForkingPickler to share tensors
from torch import Tensor

from bvat.engine.cpu import DEFAULT_ENGINE
from bvat.engine.sparse import SparseMatrix
from bvat.engine.tensor import LayeredPass, Trace
from bvat.graph import Graph
from bvat.graph.inputs import Block
from bvat.models import Masks
from core_helpers import gradients, make_gcn, seeded
from kernel_helpers import DTYPES, assert_same, only_compiled, random, sparse, without_numba


@pytest.fixture
def graph(graph: Graph) -> Graph:
    """The graph of all tests, which computes with tensor operations elsewhere."""
    return graph.with_engine("compiled")


class Case:
    """The later layers of a GCN on some matrices, with all that its two passes read."""

    def __init__(
        self, layers: list[Any], hidden: int, classes: int, dtype: torch.dtype, *, masked: bool
    ) -> None:
        self.layers, self.factor = layers, 2.0 if masked else 1.0
        self.projected = random(layers[0].shape[1], hidden, dtype=dtype)
        widths = [hidden] * (len(layers) - 1) + [classes]
        self.weights = tuple(
            random(hidden, width, dtype=dtype, seed=k) / hidden**0.5 for k, width in enumerate(widths[1:])
        )
        self.masks = tuple(
            2 * (random(matrix.shape[0], hidden, dtype=dtype, seed=9) > 0).to(dtype)
            for matrix in (layers[:-1] if masked else ())
        )
        self.grad = random(layers[-1].shape[0], classes, dtype=dtype, seed=5)

    @property
    def step(self) -> LayeredPass:
        return LayeredPass(self.layers, self.weights, self.masks, self.factor)

    def forward(self) -> tuple[Tensor, Trace]:
        return DEFAULT_ENGINE.gcn_forward(self.step, self.projected)

    def backward(self, trace: Trace) -> tuple[Tensor, list[Tensor]]:
        return DEFAULT_ENGINE.gcn_backward(self.step, trace, self.grad, for_weights=True)

    def check(self) -> None:
        """Compare both passes with those of plain torch, the backward pass from the same trace."""
        inputs = [self.projected, self.grad, *self.weights, *self.masks]
        before = [tensor.clone() for tensor in inputs]
        logits, trace = self.forward()
        projected, weights = self.backward(trace)
        assert DEFAULT_ENGINE.gcn_backward(self.step, trace, self.grad, for_weights=False)[1] == []
        with without_numba():
            plain_logits, plain_trace = self.forward()
            plain_projected, plain_weights = self.backward(trace)
        assert_same(logits, plain_logits)
        for ours, theirs in zip(trace.hidden, plain_trace.hidden, strict=True):
            assert_same(ours, theirs)
        assert_same(projected, plain_projected)
        for ours, theirs in zip(weights, plain_weights, strict=True):
            assert_same(ours, theirs)
        assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True)), "inputs are only read"


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masks"])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("hidden", [8, 16, 24, 64])
def test_layers(hidden: int, depth: int, masked: bool) -> None:
    """On one matrix that is not symmetric, for 2 to 9 classes; 9 are more than 8 hidden units."""
    s = sparse(60, 60, torch.float32)
    for classes in range(2, 10):
        width = hidden if depth > 1 else classes
        case = Case([s] * depth, width, classes, torch.float32, masked=masked)
        case.check()
        if hidden % 16 == 0 and depth > 1:
            with only_compiled("gcn_forward", "gcn_backward"):
                case.backward(case.forward()[1])


@pytest.mark.parametrize("classes", [2, 7, 16])
@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masks"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_layers_on_rectangles(dtype: torch.dtype, masked: bool, classes: int) -> None:
    """As receptive fields have them: fewer rows from layer to layer."""
    sizes = [(40, 70), (11, 40), (5, 11)]
    blocks = [sparse(rows, columns, dtype, Block) for rows, columns in sizes]
    for some in (blocks, blocks[1:]):
        Case(some, 16, classes, dtype, masked=masked).check()


def test_layers_of_one_node() -> None:
    one = torch.zeros(1, dtype=torch.int32)
    s = SparseMatrix(torch.tensor([0, 1], dtype=torch.int32), one, torch.tensor([0.5]), (1, 1))
    for masked in (False, True):
        Case([s, s, s], 16, 3, torch.float32, masked=masked).check()


@pytest.mark.parametrize("dtype", DTYPES)
def test_layers_of_tensors_that_do_not_lie_by_rows(dtype: torch.dtype) -> None:
    s = sparse(60, 60, dtype)

    def by_columns(tensor: Tensor) -> Tensor:
        return tensor.t().contiguous().t()

    def strided(tensor: Tensor) -> Tensor:
        return tensor.repeat_interleave(2, 1)[:, ::2]

    for change in (by_columns, strided):
        for part in ("projected", "weights", "masks", "grad"):
            case = Case([s] * 3, 16, 5, dtype, masked=True)
            logits, trace = case.forward()
            gradient = case.backward(trace)[0]
            given = getattr(case, part)
            new = tuple(map(change, given)) if isinstance(given, tuple) else change(given)
            setattr(case, part, new)
            case.check()
            found, trace = case.forward()
            assert_same(found, logits)
            assert_same(case.backward(trace)[0], gradient)
    case = Case([s] * 2, 16, 5, dtype, masked=False)
    case.grad = torch.ones(1, 1, dtype=dtype).expand(60, 5)  # as a sum hands it down
    case.check()


def test_masks_of_another_precision_or_of_one_row() -> None:
    s = sparse(60, 60, torch.float32)
    case = Case([s] * 3, 16, 5, torch.float32, masked=True)
    expected = case.forward()[0]
    for dtype in (torch.float64, torch.float16, torch.int32):
        case.masks = tuple(mask.to(dtype) for mask in case.masks)
        assert_same(case.forward()[0], expected)
        case.check()
    case.masks = tuple(mask[:1] for mask in Case([s] * 3, 16, 5, torch.float32, masked=True).masks)
    case.check()


@pytest.mark.parametrize("hidden", [5, 16])
def test_a_pass_whose_shapes_do_not_match_is_refused(graph: Graph, hidden: int) -> None:
    """Not only where torch multiplies: a compiled loop would read the memory behind the tensors."""
    model = make_gcn(graph, hidden=hidden)
    for rows, width in ((30, hidden), (50, hidden), (40, hidden + 16), (40, 3)):
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            model.propagate(graph, torch.ones(rows, width))
    with pytest.raises(RuntimeError, match="dtype"):
        model.propagate(graph.to(dtype=torch.float64), torch.ones(40, hidden))
    masks = Masks(None, (torch.ones(20, hidden),), 2.0)
    with pytest.raises(RuntimeError, match="size of tensor"):
        model.propagate(graph, torch.ones(40, hidden), masks)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_model_without_numba_gives_the_same(graph: Graph, layers: int, dropout: float) -> None:
    model = make_gcn(graph, layers=layers, hidden=16, dropout=dropout)
    masks = model.draw_masks(graph, seeded())

    def run() -> list[Tensor]:
        logits = model(graph, masks)
        return [logits.detach(), *gradients(logits.pow(2).sum(), model)]

    found = run()
    with without_numba():
        expected = run()
    for ours, theirs in zip(found, expected, strict=True):
        assert_same(ours, theirs)


def test_gradients_against_finite_differences(make_graph: Callable[..., Graph]) -> None:
    graph = make_graph(nodes=12, features=6, edges=10, seed=2).to(dtype=torch.float64)
    model = make_gcn(graph, layers=3, hidden=16, dropout=0.5)
    masks = model.draw_masks(graph, seeded())

    def whole(*weights: Tensor) -> Tensor:
        named = {f"weights.{k}": weight for k, weight in enumerate(weights)}
        logits: Tensor = torch.func.functional_call(model, named, (graph, masks))
        return logits

    assert torch.autograd.gradcheck(
        whole, tuple(weight.detach().clone().requires_grad_() for weight in model.weights)
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("layer", [0, 1])
def test_numbers_that_are_not_finite_are_not_hidden(graph: Graph, layer: int, value: float) -> None:
    """A relu that turned NaN into 0 would hide from the training loop that it diverged."""
    model = make_gcn(graph, hidden=16)
    with torch.no_grad():
        model.weights[layer][0, 0] = value

    def run() -> list[Tensor]:
        logits = model(graph)
        return [logits.detach(), *gradients(logits.sum(), model)]

    found = run()
    assert not found[0].isfinite().all()
    with without_numba():
        expected = run()
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours.isfinite(), theirs.isfinite())
