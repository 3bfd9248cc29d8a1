from __future__ import annotations

import pytest
import torch

from bvat.engine import rowwise
from bvat.engine.tensor import AdamRates


@pytest.mark.parametrize(("inner", "width"), [(16, 16), (7, 3), (33, 8), (16, 21), (1, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_of_a_product_does_not_depend_on_the_others(inner, width, dtype) -> None:
    a, b = torch.randn(101, inner, dtype=dtype), torch.randn(inner, width, dtype=dtype)
    whole = rowwise.times(a, b)
    assert torch.allclose(whole, a @ b, atol=1e-5)
    for rows in ([100], [5, 3], list(range(50, 101))):
        assert torch.equal(rowwise.times(a[rows], b), whole[rows])


def test_softmax_and_sums_of_rows_do_not_depend_on_the_others() -> None:
    logits = 5 * torch.randn(77, 7)
    p, log_p = rowwise.softmax(logits)
    assert torch.allclose(p, logits.softmax(1), atol=1e-6)
    assert torch.allclose(log_p, logits.log_softmax(1), atol=1e-5)
    assert all(torch.equal(a[:3], b) for a, b in zip((p, log_p), rowwise.softmax(logits[:3]), strict=True))
    assert torch.equal(rowwise.log(p)[5:9], rowwise.log(p[5:9]))
    assert torch.allclose(rowwise.row_dots(logits, p), (logits * p).sum(1), atol=1e-5)


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e20])
def test_sums_over_rows_are_the_same_in_any_order_and_grouping(size) -> None:
    a, b = torch.randn(5000, 3) * size, torch.randn(5000, 5)
    a[::7] *= 1e-4  # terms of different sizes, of which a plain sum depends on the order
    c = rowwise.magic(float(a.abs().max()) * float(b.abs().max()), 5000)
    whole = rowwise.node_product(a, b, c)
    order = torch.randperm(5000)
    split = order.split([1, 1999, 3000])
    assert torch.equal(rowwise.node_product(a[order], b[order], c), whole)
    assert torch.equal(sum(rowwise.node_product(a[part], b[part], c) for part in split), whole)
    exact = a.double().t() @ b.double()
    assert torch.allclose(whole, exact, rtol=1e-8, atol=1e-8 * size)


def test_a_term_that_is_not_finite_is_seen_in_the_sum() -> None:
    a = torch.ones(4, 1)
    a[2] = torch.nan
    c = rowwise.magic(float(a.abs().max()), 4)
    assert not rowwise.node_product(a, torch.ones(4, 1), c).isfinite().any()
    assert rowwise.magic(0.0, 4) == 0


def test_a_step_of_adam_is_the_one_of_torch() -> None:
    values = torch.randn(9, 5)
    mine, theirs = values.clone(), torch.nn.Parameter(values.clone())
    moments = {
        "first": torch.zeros_like(values),
        "second": torch.zeros_like(values),
        "count": torch.zeros(()),
    }
    optimizer = torch.optim.Adam([theirs], lr=0.1, weight_decay=0.5, maximize=False)
    for _ in range(3):
        gradient = torch.randn(9, 5)
        rowwise.adam_step_(mine, gradient, moments, AdamRates(0.1, 0.5))
        theirs.grad = -gradient
        optimizer.step()
    assert torch.allclose(mine, theirs.detach(), atol=1e-5)
