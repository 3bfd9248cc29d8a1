"""``audit``: for every node, how far its prediction can be moved, and how little gives it another class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bvat.audit.fields import Fields, receptive_fields
from bvat.audit.fragility import Flip, Neighbourhoods, local_smoothness, smallest_flip
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.models.base import ProjectedModel

EPSILON = 0.03
"""Length of a row of the perturbation at which LDS is measured, the paper's for Cora."""
REACH = 10.0
"""The search for a smallest perturbation goes up to so many times the typical length of the features."""


@dataclass(frozen=True)
class Audit:
    """What :func:`audit` found, one entry for each of n nodes.

    Shapes: all (n). ``lds`` is at least 0; ``smallest`` is the Frobenius norm over the receptive field, in
    the units of the features, infinite where nothing was found; ``relative`` is the same divided by the norm
    of the features in that field; ``becomes`` is the class it changes to, -1 where nothing was found.
    """

    epsilon: float
    nodes: Tensor
    predicted: Tensor
    confidence: Tensor
    field_size: Tensor
    lds: Tensor
    smallest: Tensor
    relative: Tensor
    becomes: Tensor

    def summary(self) -> dict[str, Any]:
        """Return quantiles over the nodes as plain values; None where there is no finite one."""

        def quantile(values: Tensor, share: float) -> float | None:
            found = float(np.quantile(values.double().numpy(), share, method="lower"))
            return found if np.isfinite(found) else None

        return {
            "nodes": self.nodes.numel(),
            "epsilon": self.epsilon,
            "median_lds": quantile(self.lds, 0.5),
            "mean_lds": float(self.lds.double().mean()),
            "median_smallest": quantile(self.smallest, 0.5),
            "median_relative": quantile(self.relative, 0.5),
            "tenth_smallest": quantile(self.smallest, 0.1),
            "not_found": int((~torch.isfinite(self.smallest)).sum()),
        }


def audit(
    model: ProjectedModel,
    graph: Graph,
    *,
    epsilon: float = EPSILON,
    nodes: Tensor | None = None,
    progress: Callable[[int], None] | None = None,
) -> Audit:
    """Measure how fragile the predictions of a model are. The model is put into eval mode.

    Each node gets a worst case of its own: its receptive field is copied, so that no perturbation is a
    compromise between nodes.

    Args:
        model: a model of ``bvat.models``, or one of your own split into ``project`` and ``propagate``.
        graph: the graph.
        epsilon: length of each row of the perturbation for LDS.
        nodes: which nodes, int64; all when left out.
        progress: called with the number of nodes done.

    Example:
        >>> found = audit(model, graph, epsilon=0.03)
        >>> found.nodes[found.smallest.argmin()]  # the most fragile one
    """
    check_epsilon(epsilon)
    chosen = torch.arange(graph.num_nodes) if nodes is None else nodes
    parts: list[tuple[Tensor, ...]] = []
    done = 0
    for around, bound in _neighbourhoods(model, graph, chosen):
        fields = around.fields
        with torch.no_grad():
            lds = local_smoothness(around, epsilon)
            flip = smallest_flip(around, bound)
        probability = torch.softmax(around.logits, 1).amax(1)
        norm = fields.sums(graph.features.row_squares().index_select(0, fields.nodes)).sqrt()
        relative = flip.length / norm  # infinite where there are no features at all
        found = (around.predicted, probability, fields.sizes, lds, flip.length, relative, flip.becomes)
        parts.append(tuple(part.cpu() for part in found))
        done += fields.centres.numel()
        if progress is not None:
            progress(done)
    return Audit(epsilon, chosen.cpu(), *(torch.cat(column) for column in zip(*parts, strict=True)))


def check_epsilon(epsilon: float) -> None:
    """Raise SettingsError unless epsilon is a length."""
    if not 0 <= epsilon < float("inf"):
        raise SettingsError(f"epsilon must be finite and not negative, not {epsilon}")


def smallest_perturbation(model: ProjectedModel, graph: Graph, node: int) -> tuple[Tensor, Flip]:
    """Return the shortest perturbation found that changes the class of one node, R itself.

    Shapes: R (N, D), zero outside the receptive field of the node, and everywhere if nothing was found.
    """
    around, flip = _flip_of(model, graph, node)
    r = torch.zeros(graph.num_nodes, graph.num_features, dtype=flip.r.dtype, device=graph.device)
    return r.index_copy_(0, around.fields.nodes, around.space.to_dense(flip.r)), flip


def perturbed_rows(model: ProjectedModel, graph: Graph, node: int) -> tuple[Tensor, Tensor]:
    """Return the receptive field of a node, int64 (m), and how long each row of that perturbation is, (m)."""
    around, flip = _flip_of(model, graph, node)
    return around.fields.nodes.cpu(), around.space.row_squares(flip.r).sqrt().cpu()


def _flip_of(model: ProjectedModel, graph: Graph, node: int) -> tuple[Neighbourhoods, Flip]:
    (around, bound), *_ = _neighbourhoods(model, graph, torch.tensor([node]))
    with torch.no_grad():
        return around, smallest_flip(around, bound)


def sample_nodes(graph: Graph, count: int, seed: int = 0) -> Tensor:
    """Return ``count`` different nodes (all if there are no more), drawn at random, ascending."""
    if count < 1:
        raise SettingsError(f"the number of nodes must be at least 1, not {count}")
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(seed))
    return order[:count].sort().values


def _neighbourhoods(model: Any, graph: Graph, nodes: Tensor) -> Any:
    """Yield the model on receptive fields, and the longest perturbation to try for each, (b)."""
    model.eval()
    with torch.no_grad():
        projected = model.project(graph)
        typical = graph.features.row_squares().mean().sqrt()
        for fields in receptive_fields(graph, model.depth, nodes):
            yield Neighbourhoods(model, fields, projected), _bound(fields, typical)


def _bound(fields: Fields, typical: Tensor) -> Tensor:
    return REACH * typical * fields.sizes.to(typical.dtype).sqrt()
