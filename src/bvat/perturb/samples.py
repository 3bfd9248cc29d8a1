"""Several random passes and one target for all of them: the training of GRAND (Feng et al., 2020).

``q = sharpen(mean_s p_s)``, ``loss = mean_s L0(p_s) + lambda mean_s D(q, p_s)``
(https://arxiv.org/abs/2005.11079). What differs between the passes is the dropout of the model, whatever
that is; with :class:`bvat.models.RandomPropagation` it is random propagation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from bvat.engine.cpu import DEFAULT_ENGINE
from bvat.engine.draws import Source, as_draws
from bvat.engine.tensor import CLASS_MAJOR_UP_TO, TensorEngine, with_gradient
from bvat.graph.inputs import GraphInputs
from bvat.graph.targets import targets_of
from bvat.models.base import ProjectedModel
from bvat.models.wrapped import EdgeInputs, WrappedModule
from bvat.perturb.divergence import KL, CleanPrediction, Divergence, make_divergence
from bvat.perturb.flag import CleanPass, OnLabels
from bvat.perturb.methods import GRANDOptions
from bvat.perturb.problem import DropoutPolicy
from bvat.perturb.regulariser import Outcome


class Pass(NamedTuple):
    """One pass of a model: its masks, projected features (N, H) if they were kept, and logits (N, C)."""

    masks: Any
    projected: Tensor | None
    logits: Tensor


class Passes(list[Pass]):
    """Passes with masks of their own."""

    @cached_property
    def stacked(self) -> Tensor:
        """Their logits one below the other, (S N, C)."""
        return stacked([one.logits for one in self])


def draw_passes(
    model: ProjectedModel,
    inputs: GraphInputs,
    generator: Source,
    count: int,
    *,
    reuse: bool = False,
    first: Pass | None = None,
) -> Passes:
    """Make ``count`` passes with masks of their own, of which ``first`` may have been made before.

    With ``reuse`` they share the projected features of the first, and with them its mask of the features:
    the products with X, on many graphs the most expensive ones, are then needed once.
    """
    passes = Passes([] if first is None else [first])
    for _ in range(len(passes), count):
        reused = passes[0].projected if reuse and passes else None
        masks = model.draw_masks(inputs, generator, features=reused is None)
        if isinstance(model, WrappedModule) and not isinstance(inputs, EdgeInputs):  # a clean pass
            passes.append(Pass(masks, None, model(inputs, masks)))
            continue
        projected = model.project(inputs, masks) if reused is None else reused
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
def sharpened_mean(
    logits: Sequence[Tensor], temperature: float, engine: TensorEngine = DEFAULT_ENGINE
) -> Tensor:
    """Return the target ``q_k ∝ (1/S sum_s p_sk)^(1/T)`` without gradient; shapes (N, C).

    T = 1 is the mean; the smaller T, the closer q is to one class.
    """
    return _sharpened(_mean(engine.softmax(stacked(logits)), len(logits)), temperature, engine)


def _mean(predicted: Tensor, count: int) -> Tensor:
    """Return ``1/S sum_s p_s`` (N, C) of stacked predictions (S N, C)."""
    total = predicted.shape[0] // count
    parts = [predicted[start : start + total] for start in range(0, len(predicted), total)]
    return sum(parts[1:], parts[0]) / count


def _sharpened(mean: Tensor, temperature: float, engine: TensorEngine) -> Tensor:
    return engine.softmax(KL(engine).logits(mean).div_(temperature))


@dataclass
class GRAND(OnLabels):
    """Several dropout passes that must agree with their sharpened mean (Feng et al., 2020).

    The returned loss is ``mean_s L0(p_s) - L0(p_1) + agreement * mean_s D(q, p_s)`` over S passes, of which
    the one that was passed is the first: added to its supervised loss L0 with weight 1 it gives GRAND's
    objective.

    Args:
        samples: S, at least 2.
        agreement: weight of the distance from the mean.
        temperature: how sharp the mean q is made: 1 leaves it as it is.
        divergence, generator, confidence: as for :class:`bvat.perturb.Regulariser`.
        dropout: "reuse" shares the projected features of the first pass, if they are passed as ``projected``;
            by any other policy each pass draws all its masks.
        class_weights: weight of each class in L0, (C); None: all alike.
    """

    samples: int = GRANDOptions.samples
    agreement: float = GRANDOptions.agreement
    temperature: float = GRANDOptions.temperature
    divergence: Divergence | str = GRANDOptions.divergence
    dropout: DropoutPolicy = "reuse"
    confidence: float = GRANDOptions.confidence

    def __post_init__(self) -> None:
        GRANDOptions(samples=self.samples, temperature=self.temperature)  # checks them
        super().__post_init__()
        self.divergence = make_divergence(self.divergence)

    def draw(
        self, model: ProjectedModel, inputs: GraphInputs, generator: Source, first: Pass | None = None
    ) -> Passes:
        """Make all passes of a training step, of which ``first`` may have been made before."""
        reuse = self.dropout == "reuse"
        return draw_passes(model, inputs, generator, self.samples, reuse=reuse, first=first)

    def agree(self, logits: Tensor, engine: TensorEngine = DEFAULT_ENGINE) -> tuple[Tensor, Tensor]:
        """Return the sharpened mean q, (N, C), and ``1/S sum_s mean_u D(q_u, p_su)``; q gets no gradient.

        Nodes whose mean prediction has no probability of ``confidence`` count as zero.
        Shapes: logits (S N, C), see :func:`stacked`.
        """
        predicted = engine.softmax(logits)
        mean = _mean(predicted, self.samples)
        target = _sharpened(mean, self.temperature, engine)
        parts = (stacked([part] * self.samples) for part in (target, KL(engine).logits(target)))
        divergence = cast("Divergence", self.divergence).on(engine)
        value, gradient = divergence.value_and_gradient(CleanPrediction(*parts), logits, predicted)
        if self.confidence:
            unsure = (mean.amax(1) < self.confidence).repeat(self.samples)
            value, gradient = value.masked_fill(unsure, 0), gradient.masked_fill(unsure[:, None], 0)
        return target, with_gradient(logits, engine.mean(value), gradient, 1 / engine.total(value.numel()))

    def outcome(self, model: Any, inputs: Any, clean: CleanPass) -> Outcome:
        engine, generator = inputs.engine, as_draws(cast("Source | None", self.generator))
        logits, train, labels = clean.logits, clean.train, clean.labels
        targets_of(labels).require_one_class("GRAND", "use bvat.VAT, or bvat.FLAG")
        passes = self.draw(model, inputs, generator, Pass(clean.masks, clean.projected, logits))
        every, count = passes.stacked, logits.shape[0]
        supervised = every.new_zeros(())
        if train.numel():
            of_all = every.index_select(0, nodes_of_passes(train, count, self.samples))
            one = engine.cross_entropy(logits.index_select(0, train), labels, self.class_weights)
            supervised = engine.cross_entropy(of_all, labels.repeat(self.samples), self.class_weights) - one
        if clean.nodes is not None:
            every = every.index_select(0, nodes_of_passes(clean.nodes, count, self.samples))
            count = clean.nodes.numel()
        none = logits.new_zeros(())
        loss = supervised + self.agreement * self.agree(every, engine)[1]
        return Outcome(loss, engine.total(count), none, none, "none")
