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

from bvat.engine.draws import Source
from bvat.engine.tensor import CLASS_MAJOR_UP_TO, with_gradient
from bvat.engine.world import current
from bvat.graph.inputs import GraphInputs
from bvat.models.base import ProjectedModel
from bvat.perturb.divergence import KL, CleanPrediction, Divergence


class Pass(NamedTuple):
    """One pass of a model: its masks, projected features (N, H) if they were kept, and logits (N, C)."""

    masks: Any
    projected: Tensor | None
    logits: Tensor


def draw_passes(
    model: ProjectedModel,
    inputs: GraphInputs,
    generator: Source,
    count: int,
    *,
    reuse: bool = False,
    keep_projected: bool = True,
) -> list[Pass]:
    """Make ``count`` passes with masks of their own.

    Without ``keep_projected``, a model that has ``whole_pass`` need not compute what is dropped later.

    With ``reuse`` they share the projected features of the first, and with them its mask of the features:
    the products with X, the dearest part on many graphs, are then needed once.
    """
    passes: list[Pass] = []
    reuse = reuse and count > 1
    whole_pass = None if keep_projected or reuse else getattr(model, "whole_pass", None)
    for _ in range(count):
        if whole_pass is not None:
            masks = model.draw_masks(inputs, generator)
            passes.append(Pass(masks, None, whole_pass(inputs, masks)))
            continue
        first = passes[0].projected if reuse and passes else None
        masks = model.draw_masks(inputs, generator, features=first is None)
        projected = model.project(inputs, masks) if first is None else first
        passes.append(Pass(masks, projected, model.propagate(inputs, projected, masks)))
    return passes


def stacked(logits: Sequence[Tensor]) -> Tensor:
    """Return the logits (N, C) of S passes one below the other, (S N, C): one operation then serves all."""
    if len(logits) == 1:
        return logits[0]
    if logits[0].shape[1] > CLASS_MAJOR_UP_TO:
        return torch.cat(list(logits))
    return torch.cat([part.t() for part in logits], 1).t()


def nodes_of_passes(nodes: Tensor, total: int, count: int) -> Tensor:
    """Return the rows in which :func:`stacked` logits have some of the N nodes; nodes (n), result (S n)."""
    if count == 1:
        return nodes
    return (total * torch.arange(count, device=nodes.device)[:, None] + nodes).reshape(-1)


@torch.no_grad()
def sharpened_mean(logits: Sequence[Tensor], temperature: float) -> Tensor:
    """Return the target ``q_k ∝ (1/S sum_s p_sk)^(1/T)`` without gradient; shapes (N, C).

    T = 1 is the mean; the smaller T, the closer q is to one class.
    """
    return _sharpened(_mean(current().softmax(stacked(logits)), len(logits)), temperature)


class Agreement(NamedTuple):
    """The target of all passes (N, C), and how far they are from it, a scalar with gradient."""

    target: Tensor
    loss: Tensor


def agreement(
    logits: Tensor, count: int, temperature: float, divergence: Divergence, confidence: float = 0.0
) -> Agreement:
    """Return the sharpened mean q, and ``1/S sum_s mean_u D(q_u, p_su)``; q gets no gradient.

    Nodes whose mean prediction has no probability of ``confidence`` count as zero.
    Shapes: logits (S N, C) of ``count`` passes, see :func:`stacked`.
    """
    here = current()
    predicted = here.softmax(logits)
    mean = _mean(predicted, count)
    target = _sharpened(mean, temperature)
    clean = CleanPrediction(*(stacked([part] * count) for part in (target, KL(here).logits(target))))
    value, gradient = divergence.on(here).value_and_gradient(clean, logits, predicted)
    if confidence:
        unsure = (mean.amax(1) < confidence).repeat(count)
        value, gradient = value.masked_fill(unsure, 0), gradient.masked_fill(unsure[:, None], 0)
    loss = with_gradient(logits, here.mean(value), gradient, 1 / here.total(value.numel()))
    return Agreement(target, loss)


def _mean(predicted: Tensor, count: int) -> Tensor:
    """Return ``1/S sum_s p_s`` (N, C) of stacked predictions (S N, C)."""
    total = predicted.shape[0] // count
    parts = [predicted[start : start + total] for start in range(0, len(predicted), total)]
    return sum(parts[1:], parts[0]) / count


def _sharpened(mean: Tensor, temperature: float) -> Tensor:
    here = current()
    return here.softmax(KL(here).logits(mean).div_(temperature))
