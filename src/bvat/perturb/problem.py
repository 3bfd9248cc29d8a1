"""What a search maximises, the perturbation it finds, and the passes of the model that both need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from bvat.engine.draws import Source
from bvat.engine.tensor import TensorEngine, with_gradient
from bvat.errors import SettingsError
from bvat.graph.inputs import GraphInputs
from bvat.models.base import ProjectedModel, Pullback, linearize
from bvat.perturb.divergence import CleanPrediction, Divergence
from bvat.perturb.spaces import Space

Norm = Literal["row", "field"]
DropoutPolicy = Literal["fresh", "pair", "reuse", "shared"]
POLICIES = ("fresh", "pair", "reuse", "shared")

NextPass = Callable[[], tuple[Any, Tensor]]
"""Returns the masks of a pass and its projected features, (N, H)."""


class Found(NamedTuple):
    """A perturbation: its coordinates in the space and the squared length of each row, (N)."""

    r: Tensor
    row_squares: Tensor


@dataclass(frozen=True)
class Problem:
    """What a search maximises: the sum over the chosen nodes of ``LDS_u`` as a function of r.

    Shapes: clean_logits (b, C) of the chosen nodes; rows int64 (b), where these stand in ``inputs``, None
    when they are all of its rows; owner int64 (N), whose receptive field a row lies in, -1 for none, None if
    the fields of the chosen nodes may meet.
    """

    model: ProjectedModel
    inputs: GraphInputs
    space: Space
    divergence: Divergence
    clean_logits: Tensor
    rows: Tensor | None
    owner: Tensor | None
    next_pass: NextPass
    same_masks: bool
    """Whether clean and perturbed predictions agree at r = 0: same masks, and no other target."""
    weights: Tensor | None = None
    """Weight of each chosen node, (b); None for 1."""
    share: float = 1.0
    """Factor of the loss."""
    num_chosen: int = field(init=False)
    """b, the number of chosen nodes."""

    @property
    def engine(self) -> TensorEngine:
        return self.inputs.engine

    def __post_init__(self) -> None:
        # not cached on first use: ranks that are threads would wait for each other within its lock
        object.__setattr__(self, "num_chosen", self.engine.total(self.clean_logits.shape[0]))

    @cached_property
    def clean(self) -> CleanPrediction:
        return self.divergence.predict(self.clean_logits)

    @cached_property
    def group(self) -> Tensor:
        """The field of each row, int64 (N); rows outside all fields, without effect, form group b."""
        if self.owner is None:
            raise SettingsError(
                "this search needs disjoint receptive fields: choose nodes with DisjointFields, or "
                "use norm 'row'"
            )
        return torch.where(self.owner < 0, self.num_chosen, self.owner)

    @property
    def field_sizes(self) -> Tensor:
        """How many rows of the features each field has, int64 (b)."""
        return self.group.bincount(minlength=self.num_chosen)[: self.num_chosen]

    def gradient(self, r: Tensor | None) -> Tensor:
        """Return the gradient with respect to r, at r; None stands for r = 0."""
        point = FixedPass(self)
        logits, pullback = point.linearised(point.base if r is None else self.space.add_effect(point.base, r))
        grad = self.logit_gradient(logits)
        if self.weights is not None:
            grad = grad.mul_(self.weights[:, None])
        return self.space.pull(pullback(grad))

    def logit_gradient(self, logits: Tensor) -> Tensor:
        """Return the gradient with respect to the perturbed logits, both (b, C)."""
        return self.divergence.gradient(self.clean, logits)

    def loss(self, found: Found | None) -> Tensor:
        """Return the mean of ``LDS_u`` at a perturbation, in the next pass."""
        masks, projected = self.next_pass()
        if found is not None:
            projected = projected + self.space.trained_effect(found.r)
        perturbed = self.model.propagate(self.inputs, projected, masks)
        if self.rows is not None:
            perturbed = perturbed.index_select(0, self.rows)
        value, gradient = self.divergence.value_and_gradient(self.clean, perturbed)
        if self.weights is not None:
            value, gradient = value * self.weights, gradient * self.weights[:, None]
        mean = self.engine.mean(value)
        mean = mean if self.share == 1 else self.share * mean
        return with_gradient(perturbed, mean, gradient, self.share / self.num_chosen)

    def full_step(self, gradient: Tensor, length: float, norm: Norm) -> Found:
        """Return ``length g / |g|``, the point of the sphere that a gradient points at; g is overwritten."""
        # unit length first: squares of tiny gradients would underflow
        gradient.div_(self.engine.largest(gradient.abs()).clamp_min_(torch.finfo(gradient.dtype).tiny))
        return self.scaled(Found(gradient, self.space.row_squares(gradient)), length, norm)

    def scaled(self, found: Found, length: float, norm: Norm) -> Found:
        """Return the perturbation with every row, or every receptive field, scaled to ``length``.

        What is zero stays zero, so lengths never exceed ``length``.
        """
        squares = found.row_squares
        if norm == "field":
            squares = self.engine.group_sums(squares, self.group, self.num_chosen + 1)[self.group]
        factor = squares.clamp_min(torch.finfo(squares.dtype).tiny).rsqrt_().mul_(length)
        return Found(self.space.scale_rows(found.r, factor), found.row_squares * factor * factor)


class FixedPass:
    """The next pass of a problem, kept for as many evaluations as a search needs.

    Shapes: base (N, H), the projected features of the pass; N rows of R, b chosen nodes.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.masks, self.base = problem.next_pass()

    def logits(self, projected: Tensor) -> Tensor:
        """Return the logits (b, C) of the chosen nodes at the projected features (N, H)."""
        return self._chosen(self.problem.model.propagate(self.problem.inputs, projected, self.masks))

    def linearised(self, projected: Tensor) -> tuple[Tensor, Pullback]:
        """Return the logits (b, C) and the map from their gradient (b, C) to that of the effect (N, H).

        The map can be called once only: autograd frees what it needs.
        """
        logits, pullback = linearize(self.problem.model, self.problem.inputs, projected, self.masks)
        rows = self.problem.rows
        if rows is None:
            return logits, pullback

        def of_chosen(gradient: Tensor) -> Tensor:
            return pullback(torch.zeros_like(logits).index_copy_(0, rows, gradient))

        return self._chosen(logits), of_chosen

    def _chosen(self, logits: Tensor) -> Tensor:
        return logits if self.problem.rows is None else logits.index_select(0, self.problem.rows)


def make_passes(
    policy: DropoutPolicy,
    model: ProjectedModel,
    inputs: GraphInputs,
    generator: Source | None,
    masks: Any,
    projected: Tensor | None,
) -> tuple[NextPass, bool]:
    """Return the perturbed passes on ``inputs``, and whether they have the masks of the clean pass.

    If so, they agree with it at r = 0. The inputs are the graph, or a part of it that knows its ``nodes``;
    ``masks`` and ``projected`` (N, H) are those of the clean pass on the whole graph.
    """
    nodes: Tensor | None = getattr(inputs, "nodes", None)
    if policy == "reuse" and projected is not None:
        kept = model.draw_masks(inputs, generator, features=False)
        part = projected if nodes is None else projected.index_select(0, nodes)
        return lambda: (kept, part), kept is None
    if policy == "shared":
        held = masks if nodes is None else model.restrict_masks(masks, inputs.whole, nodes)  # type: ignore[attr-defined]
        if held is None and model.training and model.draw_masks(inputs, generator) is not None:
            raise SettingsError("dropout 'shared' needs the masks of the clean pass: call with masks=...")
    else:
        held = model.draw_masks(inputs, generator)
    # held is None in training mode too when the rate is 0: then all passes agree at r = 0
    if policy == "fresh" and held is not None:
        unused = [held]

        def fresh() -> tuple[Any, Tensor]:
            drawn = unused.pop() if unused else model.draw_masks(inputs, generator)
            return drawn, model.project(inputs, drawn)

        return fresh, False
    base = model.project(inputs, held)
    return lambda: (held, base), policy == "shared" or held is None
