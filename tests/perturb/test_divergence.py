"""Divergences and entropy: values against torch's own, gradients against finite differences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bvat.engine.tensor import with_gradient
from bvat.errors import SettingsError
from bvat.perturb import KL, Bernoulli, SquaredError, entropy
from bvat.perturb.divergence import DIVERGENCES, Divergence, make_divergence

every_divergence = pytest.mark.parametrize(
    "divergence", [d() for d in DIVERGENCES.values()], ids=list(DIVERGENCES)
)
CLASSES = [2, 4, 40]  # NELL has 105


def logits(seed: int, scale: float = 2.0, dtype: torch.dtype = torch.float64, classes: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(9, classes, dtype=torch.float64, generator=generator).to(dtype)


@pytest.mark.parametrize("classes", CLASSES)
def test_entropy(classes: int) -> None:
    x = logits(0, classes=classes)
    p = x.softmax(1)
    assert torch.allclose(entropy(x), -(p * p.log()).sum(1).mean())
    assert entropy(torch.zeros(3, 4)).item() == pytest.approx(torch.tensor(4.0).log().item())
    assert torch.autograd.gradcheck(entropy, x.requires_grad_())


def test_entropy_of_certain_predictions() -> None:
    x = torch.tensor([[500.0, 0.0, -500.0]], requires_grad=True)
    value = entropy(x)
    value.backward()
    assert value.detach() == 0
    assert torch.equal(x.grad, torch.zeros_like(x))


@pytest.mark.parametrize("classes", CLASSES)
def test_kl_value(classes: int) -> None:
    p, q = logits(0, classes=classes), logits(1, classes=classes)
    expected = functional.kl_div(q.log_softmax(1), p.log_softmax(1), log_target=True, reduction="none").sum(1)
    value, gradient = KL().value_and_gradient(KL().predict(p), q)
    assert torch.allclose(value, expected)
    assert torch.allclose(gradient, q.softmax(1) - p.softmax(1))


@pytest.mark.parametrize("classes", CLASSES)
def test_squared_error_value(classes: int) -> None:
    p, q = logits(0, classes=classes), logits(1, classes=classes)
    value, _ = SquaredError().value_and_gradient(SquaredError().predict(p), q)
    assert torch.allclose(value, (q.softmax(1) - p.softmax(1)).pow(2).sum(1))


@every_divergence
@pytest.mark.parametrize("classes", CLASSES)
def test_gradient_against_finite_differences(divergence: Divergence, classes: int) -> None:
    target = divergence.predict(logits(0, classes=classes))

    def total(x: Tensor) -> Tensor:
        value, gradient = divergence.value_and_gradient(target, x)
        return with_gradient(x, value.sum(), gradient)

    assert torch.autograd.gradcheck(total, logits(1, classes=classes).requires_grad_())


@every_divergence
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_never_negative_and_zero_for_equal_predictions(divergence: Divergence, dtype: torch.dtype) -> None:
    for scale in (1e-3, 1.0, 100.0):
        p = logits(0, scale, dtype)
        value, gradient = divergence.value_and_gradient(divergence.predict(p), p.clone())
        rounding = 4 * torch.finfo(dtype).eps
        assert torch.allclose(value, torch.zeros_like(value), atol=rounding)
        assert torch.allclose(gradient, torch.zeros_like(gradient), atol=rounding)
        near = p + 1e-6 * logits(2, 1.0, dtype)
        value, gradient = divergence.value_and_gradient(divergence.predict(p), near)
        assert bool((value >= 0).all())
        assert bool(torch.isfinite(gradient).all())


def tensors(target: Any) -> list[Tensor]:
    """The tensors of a target, whatever form it has."""
    parts = target if isinstance(target, tuple) else (target,)
    return [part for part in parts if isinstance(part, Tensor)]


@every_divergence
def test_arguments_are_left_alone(divergence: Divergence) -> None:
    p, q = logits(0), logits(1)
    target = divergence.predict(p)
    before = [tensor.clone() for tensor in (p, q, *tensors(target))]
    divergence.value_and_gradient(target, q)
    assert all(torch.equal(a, b) for a, b in zip(before, (p, q, *tensors(target)), strict=True))


@every_divergence
def test_clean_side_carries_no_gradient(divergence: Divergence) -> None:
    assert not any(part.requires_grad for part in tensors(divergence.predict(logits(0).requires_grad_())))


def test_second_derivatives_are_refused_rather_than_wrong() -> None:
    x = logits(0).requires_grad_()
    first = torch.autograd.grad(entropy(x) ** 2, x, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_bernoulli_is_kl_of_yes_and_no_summed_over_the_labels() -> None:
    p, q = logits(0), logits(1)
    value, _ = Bernoulli().value_and_gradient(Bernoulli().predict(p), q)
    pairs = [
        (torch.stack([torch.zeros(9), a], 1), torch.stack([torch.zeros(9), b], 1))
        for a, b in zip(p.t(), q.t(), strict=True)
    ]
    expected = sum(KL().value_and_gradient(KL().predict(a), b)[0] for a, b in pairs)
    assert torch.allclose(value, expected)


def test_one_logit_has_the_entropy_of_two_classes() -> None:
    x = logits(0, classes=1)
    two = torch.cat([torch.zeros_like(x), x], 1)
    assert torch.allclose(entropy(x), entropy(two))
    assert torch.allclose(
        entropy(logits(0), independent=True), sum(entropy(c[:, None]) for c in logits(0).t())
    )
    assert torch.autograd.gradcheck(entropy, x.requires_grad_())


@every_divergence
def test_logits_predict_the_probabilities_they_are_made_of(divergence: Divergence) -> None:
    p = divergence.predict(logits(0)).p[:, :4]
    assert torch.allclose(divergence.predict(divergence.logits(p)).p[:, :4], p)


def test_names() -> None:
    assert {"kl": KL, "squared": SquaredError, "bernoulli": Bernoulli} == DIVERGENCES
    with pytest.raises(SettingsError, match="must be kl, squared, bernoulli"):
        make_divergence("cosine")
