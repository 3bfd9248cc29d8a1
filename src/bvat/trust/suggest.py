"""Which nodes to label next: those that say most about the nodes that are still undecided."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bvat.baselines.table import AutoOptions
from bvat.errors import GraphError, SettingsError
from bvat.graph import Graph
from bvat.inference.tables import node_id
from bvat.tuning.members import Nodes, Scores, Work

PENALTY = 0.3
"""λ, the L2 penalty of the linear classifier; from 0.1 to 1 suggestions are about equally good."""
UNDECIDED = 0.5
"""From this uncertainty on a node is called undecided: its two likeliest classes are closer than 0.5."""
FAR = 0.25
"""Below this cosine with the nearest label a node is called far from labels."""


@dataclass(frozen=True, eq=False)
class Suggestions:
    """Nodes worth a label, the most useful first.

    Shapes: nodes int64 (n); reasons n texts; gains float64 (n), each node's share of what all suggestions
    reduce; similar int64 (n), unlabelled nodes that are nearer to this node than to any other of the
    labelled and suggested ones, itself included.
    """

    nodes: Tensor
    reasons: tuple[str, ...]
    gains: Tensor
    similar: Tensor

    def columns(self, graph: Graph) -> dict[str, list[Any]]:
        """Return the table: id, why, share of the gain, and how many unlabelled nodes it stands for."""
        return {
            "id": [node_id(graph, node) for node in self.nodes.tolist()],
            "why": list(self.reasons),
            "gain": self.gains.tolist(),
            "stands_for": self.similar.tolist(),
        }


def suggest(
    graph: Graph,
    probabilities: Tensor,
    labelled: Tensor,
    count: int,
    *,
    candidates: Tensor | None = None,
    rows: Tensor | None = None,
) -> Suggestions:
    """Suggest which unlabelled nodes to label next.

    A linear classifier of the rows z, trained on the nodes S, is uncertain at node i by ``z_i M z_i`` with
    ``M = (λ I + sum_{s in S} z_s z_s')^-1``. Nodes are added to S one by one, each time the one that reduces
    ``sum_i u_i z_i M z_i`` most (V-optimal design), where ``u_i = 1 - (p_i1 - p_i2)`` is how close the two
    likeliest classes are: with few labels all nodes are undecided, and what is far from S and typical of many
    comes first; later, what is near the undecided ones.

    Args:
        graph: features and edges; neither its labels nor its splits are read.
        probabilities: of the classes, calibrated, (N, C); uniform ones if nothing is known.
        labelled: nodes with a label, int64 (m); m = 0 is possible.
        count: how many nodes to suggest.
        candidates: nodes that may be suggested, int64; by default all. Those with a label are left out.
        rows: what :func:`representative_rows` returned for this graph, (N, r).

    Raises:
        GraphError: all nodes have a label, or inputs have the wrong shape.
        SettingsError: there are not so many nodes, or nodes have several labels.
    """
    graph.targets.require_one_class("suggest", "label nodes that bvat predict is least confident of")
    p, known = probabilities.detach().double().cpu().numpy(), labelled.cpu().numpy()
    if p.shape != (graph.num_nodes, graph.num_classes) or not np.isfinite(p).all():
        expected = (graph.num_nodes, graph.num_classes)
        raise GraphError(f"probabilities have shape {p.shape}: give finite numbers of shape {expected}")
    asked = np.arange(graph.num_nodes) if candidates is None else candidates.cpu().numpy()
    free = np.setdiff1d(asked, known)
    if not free.size:
        raise GraphError(f"all nodes of {graph.name} have a label: there is nothing to suggest")
    if not 1 <= operator.index(count) <= free.size:
        raise SettingsError(
            f"count is {count}, and {free.size} nodes of {graph.name} have no label: use 1 to {free.size}"
        )
    z = (representative_rows(graph) if rows is None else rows).double().cpu().numpy()
    ranked = np.sort(p, 1)
    uncertainty = 1 - ranked[:, -1] + (ranked[:, -2] if p.shape[1] > 1 else 0)
    chosen, gains = _design(z, np.maximum(uncertainty, 1e-3), known, free, count)
    similar = _cells(z, known, chosen)
    return Suggestions(
        torch.from_numpy(chosen),
        _reasons(graph, z, p, uncertainty, known, chosen, similar),
        torch.from_numpy(gains / max(gains.sum(), 1e-12)),
        torch.from_numpy(similar),
    )


def representative_rows(graph: Graph) -> Tensor:
    """Return what nodes are compared by, rows of length 1, (N, r) or (N, 2 r).

    These are latent features that spread far over the given edges and over similar nodes, side by side as in
    ``auto``; the less the given edges agree with the features, the less they count.
    """
    work = Work(graph.to("cpu"), AutoOptions(), np.zeros(0, np.int64), [], False)
    if "given" not in work.graphs:
        return torch.from_numpy(work.views["features-far"][1])
    share = work.edges_agree / (1 + work.edges_agree)
    parts = {"given-far": share, "features-far": 1 - share}
    return torch.from_numpy(
        np.concatenate([part**0.5 * work.views[name][1] for name, part in parts.items()], 1)
    )


def _design(z: Scores, u: Scores, known: Nodes, free: Nodes, count: int) -> tuple[Nodes, Scores]:
    """Return the chosen nodes and by how much each reduces ``sum_i u_i z_i M z_i``.

    Node k reduces it by ``z_k M G M z_k / (1 + z_k M z_k)`` with ``G = sum_i u_i z_i z_i'``, and M by
    ``M z_k z_k' M / (1 + z_k M z_k)`` (Sherman and Morrison), so that a step takes O(N r).

    Shapes: z (N, r), u (N), known (m), free (n).
    """
    g, m = (z * u[:, None]).T @ z, np.linalg.inv(PENALTY * np.eye(z.shape[1]) + z[known].T @ z[known])
    at = z[free]
    spread = at @ m
    variance, reduced = (spread * at).sum(1), ((spread @ g) * spread).sum(1)
    left, chosen, gains = np.ones(free.size, bool), [], []
    for _ in range(count):
        gain = np.where(left, reduced / (1 + variance), -np.inf)
        k = int(gain.argmax())
        left[k] = False
        chosen.append(free[k])
        gains.append(max(gain[k], 0.0))
        column, scale = m @ at[k], 1 / (1 + variance[k])
        along, across = at @ column, at @ (m @ (g @ column))
        reduced += scale * along * (scale * along * (column @ g @ column) - 2 * across)
        variance -= scale * along**2
        m -= scale * np.outer(column, column)
    return np.array(chosen), np.array(gains)


def _cells(z: Scores, known: Nodes, chosen: Nodes) -> Nodes:
    """Return how many nodes without a label are nearest to each chosen one, of all chosen and labelled."""
    from sklearn.metrics import pairwise_distances_argmin

    centres = np.concatenate([chosen, known])
    others = np.setdiff1d(np.arange(z.shape[0]), centres)
    nearest = pairwise_distances_argmin(z[others], z[centres]) if others.size else others
    return 1 + np.bincount(nearest, minlength=centres.size)[: chosen.size]


def _reasons(
    graph: Graph, z: Scores, p: Scores, uncertainty: Scores, known: Nodes, chosen: Nodes, similar: Nodes
) -> tuple[str, ...]:
    from sklearn.metrics import pairwise_distances_argmin_min

    far = np.ones(chosen.size, bool)
    if known.size:
        far = 1 - pairwise_distances_argmin_min(z[chosen], z[known])[1] ** 2 / 2 < FAR  # rows of length 1
    found = []
    for k, node in enumerate(chosen):
        parts = ["far from labels"] if far[k] else []
        if known.size and uncertainty[node] >= UNDECIDED:
            first, second = (graph.class_names[c] for c in np.argsort(-p[node], kind="stable")[:2])
            parts.append(f"undecided between {first} and {second}")
        if similar[k] > 1:
            parts.append(f"stands for {similar[k]} similar nodes")
        if not parts:
            parts.append("similar to undecided nodes")
        found.append(", ".join(parts))
    return tuple(found)
