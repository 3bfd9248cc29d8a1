"""``audit``: for each node, how far its prediction can be moved, and how little changes its class."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bvat.audit.certify import BUDGETS, Budget, Certificate, certificates
from bvat.audit.copied_fields import LAYERED_ROWS_AT_ONCE, CopiedFields, copied_fields, disjoint_parts
from bvat.audit.one_row import on_one_row
from bvat.audit.result import Audit
from bvat.audit.worst_case import OneLogit, RecordingProblem, local_smoothness
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.graph.inputs import GraphInputs
from bvat.graph.targets import ONE_CLASS
from bvat.models.base import ProjectedModel
from bvat.models.gcn import GCN
from bvat.models.reading import evaluation
from bvat.models.wrapped import WrappedModule, adapt
from bvat.perturb.divergence import refuse_probabilities
from bvat.perturb.problem import Norm
from bvat.perturb.searches import SmallestFlip
from bvat.perturb.searches.smallest_flip import Flip, margins

EPSILON = 0.03
"""Length of a row of the perturbation at which LDS is measured, the paper's for Cora."""
REACH = 10.0
"""The longest perturbation tried, as a multiple of the typical length of the features."""
HALVINGS = 5
"""Bisections where each is a pass over the whole graph: the change found is about 1 % longer at most."""


def audit(
    model: ProjectedModel | nn.Module,
    graph: Any,
    *,
    epsilon: float = EPSILON,
    nodes: Tensor | None = None,
    certify: bool = False,
    progress: Callable[[int], None] | None = None,
    **arguments: Any,
) -> Audit:
    """Measure how fragile the predictions of a model are, in eval mode.

    Each node has its own worst case: its receptive field is copied, so that no perturbation is a compromise
    between nodes. A module runs on the whole graph instead, for nodes whose fields do not meet at a time. One
    logit counts as two classes, 0 where it is negative and 1 where it is positive.

    Args:
        model: a model of ``bvat.models``, one of your own split into ``project`` and ``propagate``, or any
            module (see :func:`bvat.wrap`).
        graph: the graph; for a module also torch_geometric's Data.
        epsilon: length of each row of the perturbation for LDS.
        nodes: the nodes to audit, int64; all by default.
        certify: whether to prove how far each prediction holds, see :func:`bvat.certify`.
        progress: called with the number of nodes done.
        arguments: what a module is called with besides x, by name: ``edge_weight=w``.

    Example:
        >>> found = audit(model, graph, epsilon=0.03)
        >>> weakest = found.nodes[found.smallest.argmin()]  # the most fragile node
        >>> found.lds.shape
        torch.Size([300])
    """
    parts: list[Audit] = []
    for part in audit_batches(model, graph, epsilon=epsilon, nodes=nodes, certify=certify, **arguments):
        parts.append(part)
        if progress is not None:
            progress(sum(each.nodes.numel() for each in parts))
    found = Audit.joined(parts)
    return found.of(found.nodes.sort().values if nodes is None else nodes.cpu())


def audit_batches(
    model: ProjectedModel | nn.Module,
    graph: Any,
    *,
    epsilon: float = EPSILON,
    nodes: Tensor | None = None,
    certify: bool = False,
    **arguments: Any,
) -> Iterator[Audit]:
    """Yield what :func:`audit` finds, batch by batch; begun again after a batch, it finds the same.

    The nodes come in the given order, except those of modules.
    """
    check_epsilon(epsilon)
    require_one_class(graph)
    budgets = BUDGETS if certify else BUDGETS[:1]
    proofs = certificates(model, graph, budgets) if certify or type(model) is GCN else []
    model, inputs = adapt(model, graph, arguments)
    chosen = torch.arange(inputs.features.shape[0]) if nodes is None else nodes
    squares = inputs.features.row_squares()
    with _attack(model, inputs) as attack:
        for fields in attack.fields_of(chosen):
            with torch.no_grad():  # not around the yield: callers want their gradients
                problem = attack.problem(fields)
                lds = local_smoothness(problem, epsilon)
                flips = [attack.flips(problem, fields, proof) for proof in proofs]
                flip, *lengths = _by_budget(flips or [*attack.shortest(problem)], fields.sizes)
            predicted = problem.clean_logits.argmax(1)
            probability = torch.softmax(problem.clean_logits, 1).amax(1)
            norm = fields.sums(squares.index_select(0, fields.nodes)).sqrt()
            relative = flip.length / norm  # infinite where there are no features at all
            about = (fields.centres, predicted, probability, fields.sizes)
            found = (lds, flip.length, relative, flip.becomes, *lengths)
            zeros = torch.zeros(fields.centres.numel(), dtype=torch.float64)
            proved = [each.radius[fields.centres.cpu()] for each in proofs] if certify else [zeros] * 3
            yield Audit(epsilon, *(part.cpu() for part in (*about, *found)), *proved)


def _by_budget(flips: Sequence[Flip], sizes: Tensor) -> tuple[Flip, Tensor, Tensor]:
    """Return the shortest flips for "graph", and the lengths of those for "rows" and for "node", (b).

    A change of one row is also a change of the field, and no row of a change is longer than the change. So
    what is found for one budget counts for others, and is all there is for those that were not searched.
    """
    graph, *others = flips
    if not others:
        return graph, graph.length, torch.where(sizes == 1, graph.length, math.inf)
    rows, node = others
    shorter = node.length < graph.length
    length, becomes = (torch.where(shorter, a, b) for a, b in zip(node[:2], graph[:2], strict=True))
    return Flip(length, becomes, graph.r), torch.minimum(rows.length, length), node.length


def check_epsilon(epsilon: float) -> None:
    if not 0 <= epsilon < float("inf"):
        raise SettingsError(f"epsilon must be finite and not negative, not {epsilon}")


def smallest_perturbation(
    model: ProjectedModel | nn.Module, graph: Any, node: int, *, budget: Budget = "graph", **arguments: Any
) -> tuple[Tensor, Flip]:
    """Return the shortest perturbation R found that changes the class of one node; see :func:`audit`.

    ``budget`` says in which norm it is short, see :func:`bvat.certify`.

    Shapes: R (N, D), zero outside the receptive field of the node, and everywhere if none was found.
    """
    require_one_class(graph)
    model, inputs = adapt(model, graph, arguments)
    with torch.no_grad(), _attack(model, inputs) as attack:
        # R itself can be read from the other layered coordinates only
        fields = next(attack.fields_of(torch.tensor([node]), layered=budget == "graph"))
        problem = attack.problem(fields)
        flip = min(attack.shortest(problem, budget=budget), key=lambda found: float(found.length))
        problem = problem.for_flips()
    r = torch.zeros(inputs.features.shape, dtype=flip.r.dtype, device=flip.r.device)
    return r.index_copy_(0, fields.nodes, problem.space.to_dense(flip.r)), flip


def smallest_change(model: ProjectedModel, graph: Graph, node: int) -> tuple[float, float, int]:
    """Return the entries ``smallest``, ``relative`` and ``becomes`` that :func:`audit` has for one node.

    A model that reads the whole graph needs a pass over it for every step, and here only the path to its next
    class is searched, with fewer bisections: an audit, which searches more, may find a smaller change.
    """
    if not getattr(model, "reads_whole_graph", False):
        found = audit(model, graph, nodes=torch.tensor([node]))
        return float(found.smallest[0]), float(found.relative[0]), int(found.becomes[0])
    with torch.no_grad(), _attack(model, graph) as attack:
        fields = next(attack.fields_of(torch.tensor([node])))
        search = dataclasses.replace(attack.search, targets=1, halvings=HALVINGS)
        flip = search.flips(attack.problem(fields).for_flips())
        norm = fields.sums(graph.features.row_squares().index_select(0, fields.nodes)).sqrt()
    return float(flip.length[0]), float(flip.length[0] / norm[0]), int(flip.becomes[0])


def require_one_class(graph: Any) -> None:
    """Raise SettingsError if the nodes of a graph, or of a run, have several labels."""
    targets = getattr(graph, "targets", ONE_CLASS)
    targets.require_one_class("an audit", "measure bvat.VAT(...)(model, graph, logits).r_vadv instead")


def sample_nodes(graph: Graph, count: int, seed: int = 0) -> Tensor:
    """Return ``count`` distinct nodes drawn at random (all if the graph has fewer), ascending."""
    if count < 1:
        raise SettingsError(f"the number of nodes must be at least 1, not {count}")
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(seed))
    return order[:count].sort().values


@contextmanager
def _attack(model: Any, inputs: GraphInputs) -> Iterator[Attack]:
    """Put the model into eval mode for as long as it is attacked."""
    if model.depth < 0:
        raise SettingsError("an audit needs the depth of the model: pass bvat.wrap(model, depth=K)")
    module = model.module if isinstance(model, WrappedModule) else model
    with evaluation(module) if isinstance(module, nn.Module) else nullcontext():
        with torch.no_grad():
            projected = model.project(inputs)
            typical = inputs.features.row_squares().mean().sqrt()
            logits = model.propagate(inputs, projected)
            refuse_probabilities(logits)
        whole = isinstance(model, WrappedModule) or getattr(model, "reads_whole_graph", False)
        if logits.shape[1] == 1:
            model = OneLogit(model)
        yield Attack(model, inputs, projected, SmallestFlip(reach=float(REACH * typical)), whole)


@dataclass(frozen=True)
class Attack:
    """A model in eval mode and the search for the shortest change of a class. Shapes: projected (N, H)."""

    model: Any
    inputs: GraphInputs
    projected: Tensor
    search: SmallestFlip
    on_whole: bool  # the model cannot run on a part of the graph

    def fields_of(self, nodes: Tensor, *, layered: bool = True) -> Iterator[CopiedFields]:
        if self.on_whole:
            return disjoint_parts(self.inputs, self.model.depth, nodes)
        if layered and getattr(self.model, "perturbed_on", "") == "fields":
            return copied_fields(self.inputs, self.model.depth, nodes, LAYERED_ROWS_AT_ONCE, layered=True)
        return copied_fields(self.inputs, self.model.depth, nodes)

    def problem(self, fields: CopiedFields) -> RecordingProblem:
        return RecordingProblem.on(self.model, fields, self.projected)

    def shortest(
        self, problem: RecordingProblem, select: Tensor | None = None, budget: Budget = "graph"
    ) -> Iterator[Flip]:
        """Yield the shortest flips of a budget; of several, the shortest one counts.

        Shapes: select (b, C), the gradient of the only margin to try.
        """
        selects = margins(problem.clean_logits, self.search.targets) if select is None else [select]
        if budget != "node":
            norm: Norm = "row" if budget == "rows" else "field"
            yield dataclasses.replace(self.search, norm=norm).flips(problem.for_flips(norm), selects)
            return
        for each in selects:
            for one in on_one_row(problem, each):
                yield self.search.flips(one, [each])

    def flips(self, problem: RecordingProblem, fields: CopiedFields, proof: Certificate) -> Flip:
        """Return the shortest flips for the budget of a certificate; lengths and classes only.

        The class that is proved least comes first, and a node leaves when what was found is shorter than what
        is proved of the rest.
        """
        length = torch.full_like(problem.clean_logits[:, 0], math.inf)
        becomes = torch.full_like(fields.centres, -1)
        own = problem.clean_logits.argmax(1, keepdim=True)
        proved = proof.by_class.to(length.device)[fields.centres]
        tied = proved.gather(1, own).isfinite()  # the proof, in double precision, is about another class
        proved = torch.where(tied, 0.0, proved).scatter(1, own, math.inf)
        proved, order = proved.sort(1)
        left = torch.arange(length.numel(), device=length.device)
        rows = fields.sizes if proof.budget == "graph" else torch.ones_like(fields.sizes)
        longest = self.search.longest(rows)
        for rank in range(min(self.search.targets, order.shape[1] - 1)):
            left = left[proved[left, rank] < torch.minimum(length, longest)[left]]
            parts = [fields] if left.numel() == length.numel() else self.fields_of(fields.centres[left])
            rest = left
            for part in parts:
                at, rest = rest.tensor_split([part.centres.numel()])
                select = torch.zeros_like(problem.clean_logits[at]).scatter_(1, own[at], 1)
                select.scatter_(1, order[at, rank : rank + 1], -1)
                here = problem if part is fields else self.problem(part)
                for flip in self.shortest(here, select, proof.budget):
                    better = flip.length < length[at]
                    length[at] = torch.where(better, flip.length, length[at])
                    becomes[at] = torch.where(better, flip.becomes, becomes[at])
        return Flip(length, becomes, length.new_zeros(0))
