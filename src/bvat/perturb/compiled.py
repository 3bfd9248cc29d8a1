"""Searches in few compiled functions a step: a GCN of two layers, KL, factored space, on a CPU."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bvat.graph.fields import Fields
from bvat.models.base import Masks, ProjectedModel
from bvat.models.gcn import GCN, runs_compiled
from bvat.perturb.divergence import KL, Divergence
from bvat.perturb.problem import Problem
from bvat.perturb.spaces import FactoredSpace


class TwoLayers(NamedTuple):
    """A pass through a GCN of two layers: Â (mask * relu(Â P)) W1."""

    base: Tensor  # P without a perturbation, (N, H)
    mask: Tensor  # (N, H), or (1, H) of ones
    weight: Tensor  # W1, (H, C)
    factor: float


def fits(model: ProjectedModel, divergence: Divergence, like: Tensor) -> bool:
    """Tell whether the compiled functions can make the passes of a model on tensors such as ``like``."""
    if type(model) is not GCN or model.depth != 2 or not isinstance(divergence, KL):
        return False
    return like.dtype == torch.float32 and runs_compiled(like, (model.weights[1].detach(),))


def two_layers(model: ProjectedModel, masks: Masks | None, base: Tensor) -> TwoLayers:
    """Return a pass of a model that :func:`fits`; base (N, H)."""
    if not isinstance(model, GCN):
        raise TypeError(f"a GCN is needed, not {type(model).__name__}")
    mask = base.new_ones(1, base.shape[1]) if masks is None else masks.hidden[0]
    factor = 1.0 if masks is None else masks.factor
    return TwoLayers(base.detach().contiguous(), mask, model.weights[1].detach(), factor)


def adam_ascent(
    problem: Problem,
    z: Tensor,
    moments: dict[str, Tensor],
    *,
    steps: int,
    step_size: float,
    betas: tuple[float, float],
    penalty: float,
    scale: float,
) -> bool:
    """Make steps of Adam up ``scale sum_u LDS_u - penalty/2 |Z|²`` in place, if compiled functions can.

    Returns whether they did. Shapes: z and the moments (N, H).
    """
    if problem.owner is not None or not problem.same_passes or not isinstance(problem.space, FactoredSpace):
        return False
    if not fits(problem.model, problem.divergence, z):
        return False
    layers = two_layers(problem.model, *problem.next_pass())
    from bvat.kernels import products, searches

    forward, backward = problem.inputs.propagation.arrays, problem.inputs.propagation.transposed_arrays
    base, mask, weight = layers.base.numpy(), layers.mask.numpy(), layers.weight.numpy()
    upper, target = problem.space.upper.numpy(), problem.target.p.numpy()
    values = z.numpy(), moments["first"].numpy(), moments["second"].numpy()
    # two arrays that change roles: projected features, later the gradient at the hidden layer; hidden layer
    one, other = torch.addmm(layers.base, z, problem.space.upper).numpy(), torch.empty_like(z).numpy()
    across = products.padded_width(weight.shape[1])
    narrow, slopes = (z.new_zeros(z.shape[0], across).numpy() for _ in range(2))
    (b1, b2), count = betas, int(moments["count"])
    for step in range(count + 1, count + steps + 1):
        products.layer_forward(*forward, one, mask, weight, other, narrow)
        searches.kl_slopes(*forward, narrow, target, slopes)
        searches.pull_to_hidden(*backward, slopes, weight, layers.factor, other, one)
        length, root = step_size / (1 - b1**step), (1 - b2**step) ** -0.5
        searches.adam_rows(*backward, one, upper, base, *values, length, root, betas, penalty, scale, other)
        one, other = other, one
    moments["count"] += steps
    return True


class _FieldsLoss(torch.autograd.Function):
    """The mean KL over chosen nodes with its gradients known: of P (m, H), of W1, and of W0 as Ŵ0 S."""

    @staticmethod
    def forward(
        ctx: Any, base: Tensor, first: Tensor, second: Tensor, value: Tensor, gradients: tuple[Tensor, ...]
    ) -> Tensor:
        ctx.save_for_backward(first, *gradients)
        return value.mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        first, of_base, of_first, of_second = ctx.saved_tensors
        by = grads[0]
        return of_base * by, first @ (of_first * by), of_second * by, None, None


class FieldsOutcome(NamedTuple):
    """What :func:`fields_step` returns: the loss, how many nodes, squared lengths of the rows of R (m)."""

    loss: Tensor
    nodes: int
    row_squares: Tensor


Pass = tuple[Masks | None, Tensor]
"""The masks of a pass and its projected features, (m, H)."""


def fields_step(
    model: GCN,
    inputs: Fields,
    clean: Tensor,
    search_pass: Pass,
    last_pass: Pass,
    epsilon: float,
    owner: Tensor | None,
) -> FieldsOutcome:
    """Make a power iteration from r = 0 on receptive fields and the loss after it, for a model that fits.

    Shapes: clean logits (N, C); owner (m) to take epsilon over each field, None for each row.
    """
    from bvat.kernels import products, searches

    search, last = (two_layers(model, *each) for each in (search_pass, last_pass))
    first, second = model.parameters()
    weight = first.detach()
    inner, outer = inputs.layers
    results = searches.fields_step(
        *inner.arrays,
        (outer.shape[0], *inner.shape, products.padded_width(last.weight.shape[1])),
        inputs.nodes.numpy(),
        clean.t().contiguous().numpy(),
        search.base.numpy(),
        search.mask.numpy(),
        last.base.numpy(),
        last.mask.numpy(),
        last.weight.numpy(),
        last.factor,
        (weight.t() @ weight).numpy(),
        epsilon,
        _NO_OWNER if owner is None else owner.numpy(),
    )
    value, squares, direction, of_base, hidden, summed = (torch.from_numpy(each) for each in results)
    of_first, of_second = direction.t() @ of_base, (hidden.t() @ summed)[:, : last.weight.shape[1]]
    loss: Tensor = _FieldsLoss.apply(  # type: ignore[no-untyped-call]
        last_pass[1], first, second, value, (of_base, of_first, of_second)
    )
    return FieldsOutcome(loss, value.numel(), squares)


_NO_OWNER = np.zeros(0, dtype=np.int64)
