"""The compiled entropy against the definition in double precision."""

from __future__ import annotations

import pytest
import torch

from bvat.engine.compiled.engine import CompiledEngine
from bvat.engine.tensor import CLASS_MAJOR_UP_TO, TensorEngine
from bvat.perturb.divergence import entropy
from core_helpers import seeded


@pytest.mark.parametrize("nodes", [1, 31, 32, 33, 500])
@pytest.mark.parametrize("classes", [2, 3, 7, CLASS_MAJOR_UP_TO, CLASS_MAJOR_UP_TO + 1, 105])
@pytest.mark.parametrize("size", [0.1, 3.0, 60.0])
def test_entropy(nodes: int, classes: int, size: float) -> None:
    logits = (size * torch.randn(nodes, classes, generator=seeded())).requires_grad_()
    log_p = torch.log_softmax(logits.double(), 1)
    expected = -(log_p.exp() * log_p).sum(1).mean()
    (slope,) = torch.autograd.grad(expected, logits)
    for engine in (CompiledEngine(), TensorEngine()):
        value = entropy(logits, engine=engine)
        (ours,) = torch.autograd.grad(value, logits)
        assert float(value.detach()) == pytest.approx(float(expected.detach()), rel=1e-5, abs=1e-6)
        assert torch.allclose(ours, slope, rtol=1e-4, atol=2e-6 / nodes)


def test_logits_by_columns_and_in_between() -> None:
    """Whichever way the logits lie in memory."""
    logits = torch.randn(50, 5, generator=seeded())
    value = float(entropy(logits))
    for other in (logits.t().contiguous().t(), torch.stack([logits, logits])[0], logits.repeat(1, 2)[:, :5]):
        assert float(entropy(other)) == pytest.approx(value, rel=1e-6)
    many = torch.randn(20, 50, generator=seeded())
    assert float(entropy(many.t().contiguous().t())) == pytest.approx(float(entropy(many)), rel=1e-6)
