"""FLAG: free large-scale adversarial augmentation of the features (Kong et al., 2020).

https://arxiv.org/abs/2010.09891
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from bvat.engine.draws import Source, as_draws
from bvat.engine.tensor import with_gradients
from bvat.errors import SettingsError
from bvat.graph.targets import targets_of
from bvat.models.base import ProjectedModel
from bvat.models.wrapped import adapt
from bvat.perturb.methods import FLAGOptions
from bvat.perturb.problem import DropoutPolicy, make_passes
from bvat.perturb.regulariser import Outcome, no_outcome, node_indices
from bvat.perturb.searches.ascent import Stateless
from bvat.perturb.spaces import SpaceName, make_space


class CleanPass(NamedTuple):
    """What is known of the clean pass, and the labels that count.

    Shapes: logits (N, C) with their gradient; projected (N, H); nodes int64, None for all; train int64 (n),
    the training nodes among these, and their labels int64 (n), or (n, C) if nodes have several.
    """

    logits: Tensor
    masks: Any
    projected: Tensor | None
    nodes: Tensor | None
    train: Tensor
    labels: Tensor


@dataclass
class OnLabels(Stateless):
    """A term that reads the labels: it is called as a :class:`bvat.perturb.Regulariser` is."""

    generator: Source | int | None = field(default=None, kw_only=True)
    """Source of all randomness, or a seed for one."""
    class_weights: Tensor | None = field(default=None, kw_only=True)
    """Weight of each class in L0, (C); None: all alike."""

    def __post_init__(self) -> None:
        if isinstance(self.generator, int):
            self.generator = torch.Generator().manual_seed(self.generator)

    def __call__(
        self,
        model: ProjectedModel | torch.nn.Module,
        graph: Any,
        logits: Tensor,
        masks: Any = None,
        projected: Tensor | None = None,
        target: Tensor | None = None,
        nodes: Tensor | int | None = None,
        **arguments: Any,
    ) -> Outcome:
        """Return the loss to add to the supervised one; see :class:`bvat.perturb.Regulariser`.

        There is no use for ``target``. With ``nodes`` only these count, and the training nodes among them.
        """
        if hasattr(graph, "labels"):
            train, labels = graph.train, graph.labels
        else:  # torch_geometric's Data
            mask, labels = getattr(graph, "train_mask", None), getattr(graph, "y", None)
            if mask is None or labels is None:
                who = type(self).__name__
                raise SettingsError(f"{who} needs labels and training nodes: set data.y and data.train_mask")
            train = torch.nonzero(mask).flatten()
        chosen = None if nodes is None else node_indices(nodes, logits)
        if chosen is not None:
            train = train[torch.isin(train, chosen)]
        model, inputs = adapt(model, graph, arguments)
        return self.outcome(model, inputs, CleanPass(logits, masks, projected, chosen, train, labels[train]))

    def outcome(self, model: Any, inputs: Any, clean: CleanPass) -> Outcome:
        raise NotImplementedError


@dataclass
class FLAG(OnLabels):
    """M steps of signed gradient ascent on the supervised loss, whose gradients are averaged over the steps.

    ``R_0`` is uniform in ``[-a, a]``, ``R_{m+1} = R_m + a sign(grad_R L0(X + R_m))`` for all nodes at once,
    and the returned loss is ``1/M sum_m L0(X + R_m) - L0(X)``: added to the supervised loss L0 with weight 1
    it gives FLAG's objective. One backward pass per step serves both R and the parameters, hence "free".

    The sign is taken in the coordinates of the space: entries of R itself in the dense space (as in the
    paper), the H coordinates of each row in the factored one.

    Args:
        steps: M, at least 1.
        step_size: a, in the units of the features.
        space, dropout, generator: as for :class:`bvat.perturb.Regulariser`.
        class_weights: weight of each class in L0, (C); None: all alike.
    """

    steps: int = FLAGOptions.steps
    step_size: float = FLAGOptions.step_size
    space: SpaceName = "auto"
    dropout: DropoutPolicy = "reuse"

    def __post_init__(self) -> None:
        super().__post_init__()
        FLAGOptions(steps=self.steps, step_size=self.step_size)  # checks them

    def outcome(self, model: Any, inputs: Any, clean: CleanPass) -> Outcome:
        module = getattr(model, "module", model)  # of a wrapped one
        logits, train, labels = clean.logits, clean.train, clean.labels
        if not isinstance(module, torch.nn.Module) or logits.shape[1] == 1:
            raise SettingsError("FLAG needs a module with parameters, and one logit per class")
        if clean.nodes is not None and not train.numel():
            return no_outcome(logits)
        parameters = [p for p in module.parameters() if p.requires_grad]
        draws, engine = as_draws(cast("Source | None", self.generator)), inputs.engine
        supervised = targets_of(labels).loss
        next_pass, _ = make_passes(self.dropout, model, inputs, draws, clean.masks, clean.projected)
        space = make_space(self.space, model, inputs)
        r = draws.uniform(space.shape, -self.step_size, self.step_size, logits)
        value = logits.new_zeros(())
        totals = [torch.zeros_like(parameter) for parameter in parameters]
        for step in range(self.steps):
            with torch.enable_grad():
                step_masks, base = next_pass()
                point = base + space.trained_effect(r)
                perturbed = model.propagate(inputs, point, step_masks)
                loss = supervised(perturbed.index_select(0, train), labels, self.class_weights, engine)
                loss = loss / self.steps
            keep = self.dropout != "fresh"  # these passes share their projection, also with the clean one
            slope, *gradients = torch.autograd.grad(
                loss, [point, *parameters], retain_graph=keep, materialize_grads=True
            )
            value += loss.detach()
            for total, gradient in zip(totals, gradients, strict=True):
                total.add_(gradient)
            if step + 1 < self.steps:
                r = r + self.step_size * space.pull(slope).sign()
        adversarial = with_gradients(parameters, value, totals)
        without = supervised(logits.index_select(0, train), labels, self.class_weights, engine)
        norms, count = space.row_squares(r).sqrt(), engine.total(train.numel())
        return Outcome(adversarial - without, count, engine.mean(norms), engine.largest(norms), space.name)
