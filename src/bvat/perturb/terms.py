"""What a training step adds to the supervised loss: the terms of a method, each with its weight."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bvat.engine.draws import Source
from bvat.graph import Graph
from bvat.models.base import ProjectedModel
from bvat.perturb.divergence import entropy
from bvat.perturb.methods import METHODS
from bvat.perturb.samples import GRAND, Passes, draw_passes, nodes_of_passes


class Term(NamedTuple):
    """A part of the loss: its weight, its value with gradient, and what it measured."""

    weight: float
    loss: Tensor
    measured: dict[str, Any]


@dataclass
class Method:
    """A method in training: ``alpha * mean_u E(p_u) + beta * R + agreement * A`` (Eq. 6 and GRAND).

    Args:
        regulariser: gives R: ``bvat.VAT(...)``, ``bvat.FLAG(...)`` or any callable like these; None for none.
        several: gives A, how far several passes are from their sharpened mean; None for a single pass.
        alpha, beta, agreement: the weights, which may be changed between epochs. A term with weight 0 is not
            computed.
    """

    regulariser: Any = None
    several: GRAND | None = None
    alpha: float = 0.0
    beta: float = 0.0
    agreement: float = 0.0
    space: str = "none"
    """The space of the last perturbation."""
    _full: tuple[float, float, float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.regulariser is None:
            self.beta = 0.0
        if self.several is None:
            self.agreement = 0.0
        self._full = self.alpha, self.beta, self.agreement

    def set_strength(self, share: float) -> None:
        """Set all weights to a share of what they were at first."""
        self.alpha, self.beta, self.agreement = (share * weight for weight in self._full)

    @property
    def regularises(self) -> bool:
        """Whether any weight is not 0."""
        return bool(self.alpha or self.beta or self.agreement)

    def passes(self, model: ProjectedModel, graph: Graph, generator: Source) -> Passes:
        """Make the clean passes of a step."""
        if self.several is not None and self.agreement:
            return self.several.draw(model, graph, generator)
        return draw_passes(model, graph, generator, 1)

    def terms(self, model: ProjectedModel, graph: Graph, passes: Passes) -> list[Term]:
        """Return what is added to the supervised loss of all passes."""
        found, target = [], None
        masks, projected, logits = passes[0]
        if self.several is not None and len(passes) > 1:
            target, apart = self.several.agree(passes.stacked, graph.engine)
            measured = {"r_vadv": apart.detach(), "nodes": graph.num_nodes}
            found.append(Term(self.agreement, apart, measured))
        if self.alpha:
            uncertainty = entropy(logits, independent=graph.targets.independent, engine=graph.engine)
            found.append(Term(self.alpha, uncertainty, {"entropy": uncertainty.detach()}))
        if self.beta:
            outcome = self.regulariser(model, graph, logits, masks, projected, target)
            self.space = outcome.space
            found.append(Term(self.beta, outcome.loss, outcome.measured()))
        return found

    def state_dict(self) -> dict[str, Tensor]:
        return {} if self.regulariser is None else dict(self.regulariser.state_dict())

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        if self.regulariser is not None:
            self.regulariser.load_state_dict(state)


def supervised_term(graph: Graph, passes: Passes, class_weights: Tensor | None = None) -> Term:
    """Return L0, the mean over the passes of the (binary) cross-entropy at the training nodes."""
    known = nodes_of_passes(graph.train, passes[0].logits.shape[0], len(passes))
    labels = graph.labels.index_select(0, graph.train)
    labels = labels if len(passes) == 1 else torch.cat([labels] * len(passes))
    chosen = passes.stacked.index_select(0, known)
    loss = graph.targets.loss(chosen, labels, class_weights, graph.engine)
    return Term(1.0, loss, {"supervised": loss.detach()})


def build_method(
    name: str, options: Any, generator: Source | None = None, class_weights: Tensor | None = None
) -> Method:
    """Return a method with some settings (see :mod:`bvat.perturb.methods`).

    Args:
        name: of its row in the table.
        options: its settings.
        generator: source of all randomness.
        class_weights: weight of each class in the supervised loss, (C), for a method that evaluates it.
    """
    several = None
    if options.samples > 1:
        names = ("samples", "agreement", "temperature", "divergence", "confidence")
        own = {name: getattr(options, name) for name in names}
        several = GRAND(**own, dropout=options.masks, generator=generator)
    regulariser = METHODS[name].build(options, generator)
    if hasattr(regulariser, "class_weights"):
        regulariser.class_weights = class_weights
    weights = options.alpha, getattr(options, "beta", 0.0), options.agreement
    return Method(regulariser, several, *weights)
