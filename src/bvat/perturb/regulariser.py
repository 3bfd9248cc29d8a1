"""The regularisers: which nodes x which space x how to search x which divergence."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from bvat.engine.draws import Source
from bvat.engine.tensor import TensorEngine
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.graph.inputs import GraphInputs, ReceptiveFields
from bvat.models.base import ProjectedModel
from bvat.models.wrapped import adapt
from bvat.perturb.divergence import Bernoulli, Divergence, make_divergence, refuse_probabilities
from bvat.perturb.nodes import AllNodes, Selection
from bvat.perturb.problem import POLICIES, DropoutPolicy, FixedPass, Problem, make_passes
from bvat.perturb.searches import PowerIteration, Search
from bvat.perturb.spaces import SpaceName, make_space

SUBGRAPH_SHARE = 0.7
"""Perturbed passes run on the subgraph of the receptive fields if it has at most this share of the nodes."""


@dataclass(frozen=True)
class Outcome:
    """What a regulariser returns: the loss to add, and what it measured.

    ``loss`` is R_vadv, the mean over the chosen nodes of ``KL(p(y|X) || p(y|X + R))``, differentiable with
    respect to the model's parameters; neither the clean side nor R carries a gradient.
    """

    loss: Tensor
    nodes: int
    """How many nodes were chosen."""
    row_norm: Tensor
    """Mean length of the perturbation's rows (rows of the receptive fields only)."""
    max_row_norm: Tensor
    space: str
    """The space that was used."""

    @property
    def r_vadv(self) -> float:
        return float(self.loss.detach())

    def measured(self) -> dict[str, Any]:
        """Return what the metrics of an epoch have of it."""
        return {"r_vadv": self.loss.detach(), "row_norm": self.row_norm, "nodes": self.nodes}


def no_outcome(logits: Tensor) -> Outcome:
    """Return the outcome for no nodes at all."""
    return Outcome(0.0 * logits.sum(), 0, logits.new_zeros(()), logits.new_zeros(()), "none")


@dataclass
class Regulariser:
    """R_vadv (Eq. 3, Eq. 8) for any choice of nodes, space, search and divergence.

    Args:
        nodes: which nodes are chosen.
        search: how the perturbation is found.
        space: where it lives; "auto" is factored wherever the model is linear in its features.
        divergence: how predictions are compared: "kl", "squared", or "bernoulli" for several independent
            labels; for one logit, and for a graph whose nodes have several labels, it is always the last.
        dropout: "fresh" draws masks for every pass, as the paper's code does; "pair" draws one set for all
            perturbed passes, apart from the clean pass; "reuse" takes the projected features of the clean
            pass as they are (pass them as ``projected``; without them it is "pair") and draws one set of
            masks for the layers after them, which saves all products with X; "shared" uses the masks of the
            clean pass everywhere (pass them as ``masks``). Without dropout, or in eval mode, all four are
            the same.
        generator: source of all randomness, or a seed for one.
        confidence: nodes whose clean prediction has a smaller largest probability count as zero: a prediction
            that is a guess should not be enforced.

    It never calls ``backward`` and never steps an optimiser.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> model = bvat.GCN(graph.num_features, graph.num_classes, generator=generator)
        >>> regulariser = bvat.VAT(epsilon=0.01, generator=generator)
        >>> logits = model(graph, generator=generator)
        >>> loss = F.cross_entropy(logits[graph.train], graph.labels[graph.train])
        >>> loss = loss + 0.7 * bvat.entropy(logits) + 1.2 * regulariser(model, graph, logits).loss
    """

    nodes: AllNodes = field(default_factory=AllNodes)
    search: Search = field(default_factory=PowerIteration)
    space: SpaceName = "auto"
    divergence: Divergence | str = "kl"
    dropout: DropoutPolicy = "reuse"
    generator: Source | int | None = None
    confidence: float = 0.0
    _checked: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.dropout not in POLICIES:
            raise SettingsError(f"dropout must be {', '.join(POLICIES[:-1])} or shared, not {self.dropout!r}")
        if not 0 <= self.confidence < 1:
            raise SettingsError(f"confidence must be at least 0 and below 1, not {self.confidence}")
        self.divergence = make_divergence(self.divergence)
        if isinstance(self.generator, int):
            self.generator = torch.Generator().manual_seed(self.generator)

    def __call__(
        self,
        model: ProjectedModel | torch.nn.Module | Callable[..., Tensor],
        graph: Any,
        logits: Tensor,
        masks: Any = None,
        projected: Tensor | None = None,
        target: Tensor | None = None,
        nodes: Tensor | int | None = None,
        **arguments: Any,
    ) -> Outcome:
        """Find the perturbation and return the loss.

        Args:
            model: the classifier; or any module, called with what its ``forward`` takes and the data has (x,
                edge_index, edge_weight, ...); or a function of the features (see :func:`bvat.wrap`).
            graph: the whole graph; for a module also torch_geometric's ``Data``, or the features (N, D).
            logits: the clean prediction of all nodes, (N, C); no gradient flows through it.
            masks: the dropout masks of the clean pass, needed for ``dropout="shared"`` only.
            projected: ``model.project`` of the clean pass, (N, H), needed for ``dropout="reuse"`` only.
            target: probabilities (N, C) that perturbed predictions are compared with instead of the clean
                prediction, such as :func:`bvat.perturb.samples.sharpened_mean`.
            nodes: the nodes to regularise, as a mask (N), as indices, or as a number n for the first n, the
                seed nodes of a mini-batch (``batch.batch_size``). Features of all nodes are perturbed.
            arguments: what a module is called with besides x, by name: ``edge_weight=w``.

        Raises:
            SettingsError: the logits are not those of the model: it was called with other arguments or
                weights, which is noticed where a pass can be repeated (without dropout, or with its masks);
                or they are probabilities. On a GPU only the first call is checked.
        """
        several = isinstance(graph, Graph) and graph.targets.independent
        model, graph = adapt(model, graph, arguments)
        generator, engine = cast("Source | None", self.generator), graph.engine
        if logits.dim() != 2 or logits.shape[0] != graph.features.shape[0]:
            size, shape = graph.features.shape[0], tuple(logits.shape)
            raise SettingsError(f"logits must have a row for each of the {size} nodes, not the shape {shape}")
        check = logits.is_cpu or not self._checked  # on a GPU it would wait in every call
        self._checked = True
        divergence = self._divergence_for(logits, several=several, check=check).on(engine)
        among = None if nodes is None else node_indices(nodes, logits)
        selection = self.nodes.choose(graph, model.depth, generator, among)
        clean = logits.detach() if target is None else divergence.logits(target)
        weights, share, counted = None, 1.0, 0
        if self.confidence:
            sure = divergence.confidence(clean) >= self.confidence
            selection, weights, share, counted = _sure_nodes(selection, sure, clean.dtype, engine)
            if not counted or not share:
                return no_outcome(logits)
        inputs, rows, owner = _cut(model, graph, selection)
        next_pass, same_masks = make_passes(self.dropout, model, inputs, generator, masks, projected)
        problem = Problem(
            model=model,
            inputs=inputs,
            space=make_space(self.space, model, inputs),
            divergence=divergence,
            clean_logits=selection.part_of(clean),
            rows=rows,
            owner=owner,
            next_pass=next_pass,
            same_masks=same_masks and target is None,
            weights=weights,
            share=share,
        )
        if same_masks and check:
            _check_logits(problem, selection.part_of(logits.detach()))
        with torch.no_grad():
            found = self.search.find(problem, generator)
        norms = logits.new_zeros(1) if found is None else found.row_squares.sqrt()
        if owner is not None and inputs is graph and norms.shape == owner.shape:  # a part has fields only
            norms = norms[owner >= 0]
        number = problem.num_chosen if weights is None else counted
        loss, space = problem.loss(found), problem.space.name
        return Outcome(loss, number, engine.mean(norms), engine.largest(norms), space)

    def _divergence_for(self, logits: Tensor, *, several: bool, check: bool) -> Divergence:
        """Return the divergence of some logits (N, C): one logit, and several labels, are yes or no."""
        if logits.shape[1] == 1:
            return Bernoulli()
        divergence = Bernoulli() if several else cast("Divergence", self.divergence)
        values = logits.detach()
        if not check or float(values.amin()) < 0 or float(values.amax()) > 1:
            return divergence
        if divergence.name == "bernoulli":
            text = (
                "all logits lie between 0 and 1: if they are probabilities, remove the sigmoid of the model"
            )
            warnings.warn(text, stacklevel=3)
        else:
            refuse_probabilities(values)
        return divergence

    def state_dict(self) -> dict[str, Tensor]:
        return self.search.state_dict()

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.search.load_state_dict(state)


def _sure_nodes(
    selection: Selection, sure: Tensor, dtype: torch.dtype, engine: TensorEngine
) -> tuple[Selection, Tensor | None, float, int]:
    """Return the nodes to search, their weights (None: 1), the factor of the loss, and how many are sure.

    Nodes that count as zero need no search; where all nodes are chosen, they have weights instead.
    Shapes: sure bool (N), weights (N).
    """
    count = engine.total(int(sure.sum()))
    if selection.chosen is None:
        return selection, sure.to(dtype), 1.0, count
    kept = sure.index_select(0, selection.chosen)
    return selection.only(kept, engine), None, float(engine.mean(kept.float())), count


def _cut(
    model: ProjectedModel, graph: Any, selection: Selection
) -> tuple[GraphInputs, Tensor | None, Tensor | None]:
    """Return the inputs of the perturbed passes, the chosen rows (None: all) and the owners."""
    if selection.owner is None or selection.chosen is None:
        return graph, selection.chosen, None
    part = getattr(graph, "perturbed_on", None) or getattr(model, "perturbed_on", "subgraph")
    if part == "fields":
        fields = ReceptiveFields.around(graph, selection.chosen, model.depth)
        return fields, None, selection.owner.index_select(0, fields.nodes)
    nodes = torch.nonzero(selection.owner >= 0).flatten()  # the union of the fields
    small = isinstance(graph, Graph) and nodes.numel() <= SUBGRAPH_SHARE * graph.num_nodes
    if part == "whole" or not small:
        return graph, selection.chosen, selection.owner
    rows = torch.searchsorted(nodes, selection.chosen)
    return graph.induced(nodes), rows, selection.owner.index_select(0, nodes)


def node_indices(nodes: Any, logits: Tensor) -> Tensor:
    """Return nodes given as a mask, as indices, or as a number n for the first n, as indices int64."""
    every = torch.arange(logits.shape[0], device=logits.device)
    if not getattr(nodes, "shape", True):  # a number of numpy or torch
        nodes = nodes.item()
    if isinstance(nodes, int) and 0 < nodes <= len(every) and nodes is not True:
        return every[:nodes]  # for mini-batches, which give a number: a GPU need not be waited for
    given = torch.as_tensor([] if isinstance(nodes, int) else nodes, device=logits.device)
    if given.dtype == torch.bool and given.shape == every.shape:
        given = every[given]
    inside = given.dtype != torch.bool and not given.is_floating_point() and given.dim() == 1
    if not inside or not given.numel() or not 0 <= int(given.min()) <= int(given.max()) < len(every):
        raise SettingsError(
            f"nodes must be a mask of the {len(every)} nodes, a number up to {len(every)}, or indices below "
            "it, and have at least one of them"
        )
    unique: Tensor = torch.unique(given.long())
    return unique


@torch.no_grad()
def _check_logits(problem: Problem, logits: Tensor) -> None:
    """Raise SettingsError unless the model gives the logits (b, C) that were passed, up to rounding."""
    point = FixedPass(problem)
    gap = (point.logits(point.base) - logits).abs().max()
    if gap > torch.finfo(logits.dtype).eps ** 0.5 * (1 + logits.abs().max()):
        raise SettingsError(
            f"the model does not give the logits that were passed (they differ by {float(gap):.2g}): call "
            "the regulariser before the weights change, with the same arguments as the model, "
            "regulariser(model, data, logits, edge_weight=w), or with a function of the features, "
            "regulariser(lambda x: model(x, edge_index, w), x, logits)"
        )
