"""Several random passes and one target for all of them: the training of GRAND (Feng et al., 2020).

``q = sharpen(mean_s p_s)``, ``loss = mean_s L0(p_s) + lambda mean_s D(q, p_s)``
(https://arxiv.org/abs/2005.11079). What differs between the passes is the dropout of the model, whatever
that is; with :class:`bvat.models.RandomPropagation` it is random propagation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bvat.distributed.world import current
from bvat.graph.inputs import GraphInputs
from bvat.kernels import rowwise
from bvat.kernels.layout import softmax
from bvat.models.base import ProjectedModel
from bvat.perturb.divergence import CleanPrediction, Divergence, with_gradient


class Pass(NamedTuple):
    """One pass of a model: its masks, projected features (N, H) and logits (N, C)."""

    masks: Any
    projected: Tensor
    logits: Tensor


def draw_passes(
    model: ProjectedModel, inputs: GraphInputs, generator: torch.Generator, count: int, *, reuse: bool = False
) -> list[Pass]:
    """Make ``count`` passes with masks of their own.

    With ``reuse`` they share the projected features of the first, and with them its mask of the features:
    the products with X, the dearest part on many graphs, are then needed once.
    """
    passes: list[Pass] = []
    for _ in range(count):
        again = reuse and bool(passes)
        masks = model.draw_masks(inputs, generator, features=not again)
        projected = passes[0].projected if again else model.project(inputs, masks)
        passes.append(Pass(masks, projected, model.propagate(inputs, projected, masks)))
    return passes


@torch.no_grad()
def sharpened_mean(logits: Sequence[Tensor], temperature: float) -> Tensor:
    """Return the target ``q_k ∝ (1/S sum_s p_sk)^(1/T)`` without gradient; shapes (N, C).

    T = 1 is the mean; the smaller T, the closer q is to one class.
    """
    return softmax(target_logits(mean_prediction(logits)).div_(temperature))


def mean_prediction(logits: Sequence[Tensor]) -> Tensor:
    """Return ``1/S sum_s p_s``; shapes (N, C)."""
    return sum((softmax(part) for part in logits), torch.zeros_like(logits[0])) / len(logits)


def disagreement(
    logits: Sequence[Tensor], target: Tensor, divergence: Divergence, confidence: float = 0.0
) -> list[Tensor]:
    """Return ``mean_u D(q_u, p_su)`` of every pass s, a scalar each; target q (N, C) gets no gradient.

    Nodes whose mean prediction has a smaller largest probability than ``confidence`` count as zero.
    """
    clean = CleanPrediction(target, target_logits(target))
    sure = None
    if confidence:
        with torch.no_grad():
            sure = (mean_prediction(logits).amax(1) >= confidence).to(target.dtype)
    losses = []
    for part in logits:
        value, gradient = divergence.value_and_gradient(clean, part)
        if sure is not None:
            value, gradient = value * sure, gradient * sure[:, None]
        here = current()
        losses.append(with_gradient(part, here.mean(value), gradient, 1 / here.total(value.numel())))
    return losses


def target_logits(target: Tensor) -> Tensor:
    """Return logits (n, C) that predict these probabilities (n, C): their logarithms."""
    positive = target.clamp_min(torch.finfo(target.dtype).tiny)
    return rowwise.log(positive) if rowwise.active() else positive.log()
