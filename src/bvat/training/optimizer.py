"""Adam with one L2 penalty and one learning rate per group of parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bvat.engine.tensor import AdamRates, adam_step_
from bvat.errors import SettingsError
from bvat.models.base import first_weights
from bvat.training.options import Training

try:  # torch.autograd.backward calls it too, but first imports sympy: a quarter of the time of a start
    from torch.autograd.graph import _engine_run_backward as _run_engine
except ImportError:  # it is not part of torch's interface
    _run_engine = None  # type: ignore[assignment]


class Adam:
    """Adam (Kingma and Ba, 2015) for groups of parameters, each with its own L2 penalty.

    Args:
        groups: parameters, the weight w of their penalty ``w/2 |W|²``, and a factor of their learning rate;
            groups without parameters are left out.
        lr: learning rate; it may be changed between steps.
        epsilon: added to the root in the divisor.
    """

    def __init__(
        self, groups: Iterable[tuple[Sequence[nn.Parameter], float, float]], lr: float, epsilon: float = 1e-8
    ) -> None:
        self.lr, self.epsilon = lr, epsilon
        self.groups = [group for group in groups if group[0]]
        self.state = [
            {
                "first": [torch.zeros_like(p.detach()) for p in parameters],
                "second": [torch.zeros_like(p.detach()) for p in parameters],
                "count": [p.new_zeros((), requires_grad=False) for p in parameters],
            }
            for parameters, *_ in self.groups
        ]

    def zero_grad(self) -> None:
        for parameters, *_ in self.groups:
            for parameter in parameters:
                parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters from their gradients; parameters without one stay as they are."""
        for (parameters, weight, factor), state in zip(self.groups, self.state, strict=True):
            used = [i for i, parameter in enumerate(parameters) if parameter.grad is not None]
            gradients = [g for i in used if (g := parameters[i].grad) is not None]
            if used:
                moments = {name: [tensors[i] for i in used] for name, tensors in state.items()}
                rates = AdamRates(self.lr * factor, weight, epsilon=self.epsilon)
                adam_step_([parameters[i] for i in used], gradients, moments, rates)

    def state_dict(self) -> dict[str, Tensor]:
        return {
            f"{group}.{name}.{i}": tensor
            for group, state in enumerate(self.state)
            for name, tensors in state.items()
            for i, tensor in enumerate(tensors)
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, tensor in self.state_dict().items():
            tensor.copy_(state[name])


def backward(terms: Sequence[Tensor], weights: Sequence[float]) -> None:
    """Add the gradients of ``sum_i weights_i terms_i`` to the parameters; the terms are scalars.

    The weights enter as gradients of the terms, which saves the operations that would add the terms up.
    """
    gradients = [term.new_full((), weight) for term, weight in zip(terms, weights, strict=True)]
    if _run_engine is None:
        torch.autograd.backward(terms, gradients)
    else:
        _run_engine(
            tuple(terms), tuple(gradients), False, False, (), allow_unreachable=True, accumulate_grad=True
        )


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter], longest: float) -> None:
    """Scale the gradients of all parameters together to at most this length; the L2 penalty comes after."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    length = torch.stack([gradient.norm() for gradient in gradients]).norm()
    factor = torch.where(length > longest, longest / length, 1.0)  # a number would have to be waited for
    torch._foreach_mul_(gradients, factor)


def make_optimizer(model: Any, settings: Training) -> Adam:
    """Return Adam with L2 on the first layer only, as in the reference code of GCN, or on all parameters."""
    first = first_weights(model)
    if not first and (settings.first_lr != 1 or (settings.decay == "first" and settings.weight_decay)):
        raise SettingsError(
            "the model does not read its features through linear maps alone, so that bvat does not know its "
            "first layer: use decay 'all' and first_lr 1"
        )
    rest = [p for p in model.parameters() if all(p is not each for each in first)]
    of_rest = settings.weight_decay if settings.decay == "all" else 0.0
    groups = [(first, settings.weight_decay, settings.first_lr), (rest, of_rest, 1.0)]
    return Adam(groups, settings.lr, settings.adam_epsilon)


def learning_rate(settings: Training, epoch: int) -> float:
    """Return the learning rate of an epoch, which counts from 0."""
    if settings.schedule == "constant":
        return settings.lr
    return settings.lr * 0.5 * (1 + math.cos(math.pi * epoch / settings.epochs))
