"""Our Adam against torch's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bvat.engine.tensor import AdamRates, adam_step_
from bvat.training import optimizer as module
from bvat.training.optimizer import Adam, clip_gradients


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((5, 3), (3, 2), (4,))]


@pytest.mark.parametrize("epsilon", [1e-8, 0.1])
def test_the_same_steps_as_torch(epsilon: float) -> None:
    ours, theirs = parameters(), parameters()
    mine = Adam([(ours[:1], 0.1, 1.0), (ours[1:], 0.0, 1.0)], lr=0.05, epsilon=epsilon)
    groups = [{"params": theirs[:1], "weight_decay": 0.1}, {"params": theirs[1:]}]
    torchs = torch.optim.Adam(groups, lr=0.05, foreach=False, eps=epsilon)
    for step in range(7):
        for optimizer, values in ((mine, ours), (torchs, theirs)):
            optimizer.zero_grad()
            loss = sum((p * p * (step + 1)).sin().sum() for p in values[: 2 if step == 3 else 3])
            loss.backward()
            optimizer.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("longest", [0.5, 1e6])
def test_gradients_are_clipped_as_torch_does(longest: float) -> None:
    ours, theirs = parameters(), parameters()
    for values in (ours, theirs):
        sum(p.square().sum() for p in values[:2]).backward()
    clip_gradients(ours, longest)
    torch.nn.utils.clip_grad_norm_(theirs, longest)
    assert ours[2].grad is None
    for a, b in zip(ours[:2], theirs, strict=False):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-6)


def test_taken_up_again() -> None:
    def run(values: list[nn.Parameter], optimizer: Adam, steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            sum((p.sin() * p).sum() for p in values).backward()
            optimizer.step()

    whole, part = parameters(), parameters()
    run(whole, Adam([(whole, 0.0, 1.0)], 0.1), 6)
    first = Adam([(part, 0.0, 1.0)], 0.1)
    run(part, first, 4)
    second = Adam([(part, 0.0, 1.0)], 0.1)
    second.load_state_dict({name: tensor.clone() for name, tensor in first.state_dict().items()})
    run(part, second, 2)
    assert all(torch.equal(a, b) for a, b in zip(whole, part, strict=True))


@pytest.mark.parametrize("gamma", [0.0, 0.7])
@pytest.mark.parametrize("by_columns", [False, True])
def test_uphill_with_a_penalty(gamma: float, by_columns: bool) -> None:
    """maximize with weight decay 2 gamma goes up ``f - gamma |r|²``, however the gradient lies in memory."""
    r, gradient = torch.randn(6, 4), torch.randn(4, 6).t() if by_columns else torch.randn(6, 4)
    expected = r.clone().requires_grad_()
    torchs = torch.optim.Adam([expected], lr=0.01, maximize=True, foreach=False)
    ours = r.clone()
    moments = {"first": [torch.zeros_like(r)], "second": [torch.zeros_like(r)], "count": [torch.zeros(())]}
    for _ in range(5):
        adam_step_([ours], [gradient], moments, AdamRates(0.01, 2 * gamma), maximize=True)
        expected.grad = gradient - 2 * gamma * expected.detach()
        torchs.step()
    torch.testing.assert_close(ours, expected.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", [True, False])
def test_backward_is_that_of_the_weighted_sum(monkeypatch: pytest.MonkeyPatch, engine: bool) -> None:
    if not engine:
        monkeypatch.setattr(module, "_run_engine", None)
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    module.backward([x.sum(), x.square().sum()], [2.0, 0.5])
    assert torch.equal(x.grad, 2 + x.detach())  # type: ignore[arg-type]
