"""The regularisers: which nodes x which space x how to search x which divergence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from bvat.errors import SettingsError
from bvat.graph import Graph, GraphInputs, Subgraph
from bvat.graph.fields import Fields
from bvat.models.base import ProjectedModel
from bvat.models.gcn import GCN
from bvat.models.wrap import adapt
from bvat.perturb.compiled import fields_step, fits
from bvat.perturb.divergence import KL, Divergence, with_gradient
from bvat.perturb.nodes import AllNodes, DisjointFields, NodeSelection, Selection
from bvat.perturb.problem import Norm, Problem
from bvat.perturb.searches import AdamAscent, NoSearch, PowerIteration, RandomDirection, Search
from bvat.perturb.spaces import SpaceName, make_space

DropoutPolicy = Literal["fresh", "pair", "reuse", "shared"]

SUBGRAPH_SHARE = 0.7
"""Perturbed passes run on the subgraph of the receptive fields if it has at most this share of the nodes."""


@dataclass(frozen=True)
class Outcome:
    """What a regulariser returns: the loss to add, and what it measured on the way.

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
        """R_vadv as a number."""
        return float(self.loss.detach())


@dataclass
class Regulariser:
    """R_vadv (Eq. 3, Eq. 8) for any choice of nodes, space, search and divergence.

    Args:
        nodes: which nodes enter.
        search: how the perturbation is found.
        space: where it lives; "auto" is factored wherever the model is linear in its features.
        divergence: how predictions are compared.
        dropout: "fresh" draws masks for every pass, as the paper's code does; "pair" draws one set for all
            perturbed passes, apart from the clean pass; "reuse" takes the projected features of the clean
            pass as they are (hand them over as ``projected``) and draws one set of masks for the layers after
            them, which saves all products with X; "shared" uses the masks of the clean pass everywhere
            (hand them over as ``masks``). Without dropout, or in eval mode, all four are the same.
        generator: source of all randomness.

    Example:
        >>> logits = model(graph)
        >>> loss = F.cross_entropy(logits[graph.train], graph.labels[graph.train])
        >>> loss = loss + 0.7 * bvat.entropy(logits) + 1.2 * regulariser(model, graph, logits).loss
    """

    nodes: NodeSelection = field(default_factory=AllNodes)
    search: Search = field(default_factory=PowerIteration)
    space: SpaceName = "auto"
    divergence: Divergence = field(default_factory=KL)
    dropout: DropoutPolicy = "fresh"
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        if self.dropout not in ("fresh", "pair", "reuse", "shared"):
            raise SettingsError(f"dropout must be fresh, pair, reuse or shared, not {self.dropout!r}")

    def __call__(
        self,
        model: ProjectedModel | torch.nn.Module,
        graph: Any,
        logits: Tensor,
        masks: Any = None,
        projected: Tensor | None = None,
    ) -> Outcome:
        """Find the perturbation and return the loss.

        Args:
            model: the classifier, or any module called as ``model(x, edge_index)`` (see :func:`bvat.wrap`).
            graph: the whole graph; for a module also torch_geometric's ``Data``.
            logits: the clean prediction of all nodes, (N, C); no gradient flows through it.
            masks: the dropout masks of the clean pass, needed for ``dropout="shared"`` only.
            projected: ``model.project`` of the clean pass, (N, H), needed for ``dropout="reuse"`` only.
        """
        model, graph = adapt(model, graph)
        selection = self.nodes.choose(graph, model.depth, self.generator)
        inputs, rows, owner = self._cut(model, graph, selection)
        clean = logits.detach()
        last_pass, search_pass, same_masks = self._passes(model, inputs, masks, projected)
        search = self.search
        if (
            isinstance(inputs, Fields)
            and isinstance(search, PowerIteration)
            and search.starts_at_zero(same_masks=same_masks)
            and self.space in ("auto", "factored")
            and isinstance(model, GCN)
            and fits(model, self.divergence, clean)
        ):
            over = owner if search.norm == "field" else None
            step = fields_step(model, inputs, clean, search_pass(), last_pass(), search.epsilon, over)
            norms = step.row_squares.sqrt()
            return Outcome(step.loss, step.nodes, norms.mean(), norms.max(), "factored")
        space = make_space(self.space, model, inputs)
        problem = Problem(
            model=model,
            inputs=inputs,
            space=space,
            divergence=self.divergence,
            target=self.divergence.target(
                clean if selection.chosen is None else clean.index_select(0, selection.chosen)
            ),
            rows=rows,
            owner=owner,
            next_pass=search_pass,
            same_masks=same_masks,
            same_passes=same_masks or self.dropout != "fresh",
        )
        with torch.no_grad():
            found = self.search.find(problem, self.generator)

        masks, projected = last_pass()
        if found is not None:
            projected = projected + space.trained_effect(found.r)
        perturbed = model.propagate(inputs, projected, masks)
        if rows is not None:
            perturbed = perturbed.index_select(0, rows)
        value, gradient = self.divergence.value_and_gradient(problem.target, perturbed)
        loss = with_gradient(perturbed, value.mean(), gradient, 1 / value.numel())

        norms = logits.new_zeros(1) if found is None else found.row_squares.sqrt()
        if found is not None and owner is not None:
            norms = norms[owner >= 0]
        return Outcome(loss, value.numel(), norms.mean(), norms.max(), space.name)

    @staticmethod
    def _cut(
        model: ProjectedModel, graph: Graph, selection: Selection
    ) -> tuple[GraphInputs, Tensor | None, Tensor | None]:
        """Return the inputs of the perturbed passes, the chosen rows (None: all) and the owners."""
        if selection.owner is None or selection.chosen is None:
            return graph, None, None
        if getattr(model, "takes_fields", False):
            fields = Fields.around(graph, selection.chosen, model.depth)
            return fields, None, selection.owner.index_select(0, fields.nodes)
        nodes = selection.field_nodes()
        if nodes is None or not isinstance(graph, Graph) or nodes.numel() > SUBGRAPH_SHARE * graph.num_nodes:
            return graph, selection.chosen, selection.owner
        rows = torch.searchsorted(nodes, selection.chosen)
        return graph.induced(nodes), rows, selection.owner.index_select(0, nodes)

    def _passes(
        self, model: ProjectedModel, inputs: GraphInputs, masks: Any, projected: Tensor | None
    ) -> tuple[Callable[[], tuple[Any, Tensor]], Callable[[], tuple[Any, Tensor]], bool]:
        """Return what gives masks and projected features to the last pass and to each pass of the search.

        ``masks`` and ``projected`` are those of the clean pass, of the whole graph.
        """
        policy = self.dropout
        part = inputs if isinstance(inputs, Subgraph | Fields) else None
        if policy == "shared":
            held = masks if part is None else model.restrict_masks(masks, part.whole, part.nodes)
            if held is None and model.training and model.draw_masks(inputs, self.generator) is not None:
                raise SettingsError("dropout 'shared' needs the masks of the clean pass: call with masks=...")
        elif policy == "reuse":
            held = model.draw_masks(inputs, self.generator, features=False)
        else:
            held = model.draw_masks(inputs, self.generator)
        # held is None in training mode too when the rate is 0: then all passes agree at r = 0
        if policy == "reuse":
            if projected is None:
                raise SettingsError(
                    "dropout 'reuse' needs the clean pass's features: call with projected=..."
                )
            base = projected if part is None else projected.index_select(0, part.nodes)
        elif policy == "fresh" and held is not None:
            unused = [held]

            def fresh() -> tuple[Any, Tensor]:
                drawn = unused.pop() if unused else model.draw_masks(inputs, self.generator)
                return drawn, model.project(inputs, drawn)

            return fresh, fresh, False
        else:
            base = model.project(inputs, held)
        return lambda: (held, base), lambda: (held, base.detach()), policy == "shared" or held is None

    def state_dict(self) -> dict[str, Tensor]:
        """Return what has to be kept to go on later with the same numbers."""
        return self.search.state_dict()

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take up what :meth:`state_dict` returned."""
        self.search.load_state_dict(state)


def Consistency(**options: Any) -> Regulariser:
    """No perturbation: two dropout passes shall agree. The ablation that the paper does not have."""
    return Regulariser(nodes=AllNodes(), search=NoSearch(), **options)


def Random(epsilon: float = 0.03, norm: Norm = "row", **options: Any) -> Regulariser:
    """A Gaussian direction of length epsilon at every node."""
    return Regulariser(nodes=AllNodes(), search=RandomDirection(epsilon, norm), **options)


def VAT(epsilon: float = 0.03, steps: int = 1, xi: float = 1e-6, **options: Any) -> Regulariser:
    """Virtual adversarial training at every node at once (Section 3.1)."""
    return Regulariser(nodes=AllNodes(), search=PowerIteration(epsilon, steps, xi), **options)


def SBVAT(
    epsilon: float = 0.03,
    count: int = 100,
    steps: int = 1,
    xi: float = 1e-6,
    norm: Norm = "row",
    **options: Any,
) -> Regulariser:
    """Sample-based BVAT: nodes whose receptive fields do not meet (Algorithm 1).

    ``norm="field"`` takes epsilon over each receptive field, as the text says; ``"row"`` over each of its
    rows, as the authors' code does.
    """
    return Regulariser(
        nodes=DisjointFields(count), search=PowerIteration(epsilon, steps, xi, norm), **options
    )


def OBVAT(
    steps: int = 10,
    step_size: float = 0.001,
    gamma: float = 1.0,
    start: float = 0.01,
    reduction: Literal["sum", "mean"] = "sum",
    keep_moments: bool = False,
    second_moment: Literal["entry", "row"] = "entry",
    **options: Any,
) -> Regulariser:
    """Optimisation-based BVAT: one perturbation matrix for all nodes, found by Adam (Algorithm 2)."""
    search = AdamAscent(steps, step_size, gamma, start, reduction, keep_moments, second_moment=second_moment)
    return Regulariser(nodes=AllNodes(), search=search, **options)
