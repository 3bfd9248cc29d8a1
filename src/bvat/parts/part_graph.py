"""A part of a graph that looks like a graph to models, regularisers and the training loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from bvat.engine.exchange import ExchangedMatrix, Halo, PartDense, PartFeatures
from bvat.engine.ranks import RankEngine
from bvat.engine.sparse import SparseMatrix
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.graph.inputs import FeatureMatrix
from bvat.parts.parts import Part


class CutGraph(Graph):
    """What graphs in parts have in common: they are on the CPU, and no process knows all features."""

    def column_variances(self) -> Tensor:
        raise SettingsError("scale 'columns' needs the whole graph in one process: use 'unit' or 'none'")

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """Return the graph itself; SettingsError for a device or precision that it does not have."""
        elsewhere = device is not None and torch.device(device).type != "cpu"
        if elsewhere or dtype not in (None, self.features.dtype):
            raise SettingsError("graphs in parts are on the CPU, since nccl is untested: use --device cpu")
        return self


@dataclass(frozen=True, eq=False, kw_only=True)
class PartGraph(CutGraph):
    """The part of one rank: own rows of X, Â, labels and splits, with numbers that count own nodes.

    ``num_nodes`` and ``num_edges`` are those of the whole graph. Built by :func:`part_graph`.

    Shapes: own_nodes int64 (n), numbers of own nodes in the whole graph.
    """

    own_nodes: Tensor
    whole_nodes: int
    whole_edges: int
    fingerprint: str
    """That of the whole graph."""
    folder: str = ""
    """The folder of the parts."""

    perturbed_on = "whole"
    """Perturbed passes run on all own rows: a receptive field may reach into other parts."""

    @property
    def num_nodes(self) -> int:
        return self.whole_nodes

    @property
    def num_edges(self) -> int:
        return self.whole_edges

    @property
    def propagation(self) -> ExchangedMatrix:
        return self.adjacency  # type: ignore[return-value]


def part_graph(ranks: RankEngine, part: Part, features: FeatureMatrix, about: Mapping[str, Any]) -> PartGraph:
    """Return a part as a graph.

    Args:
        ranks: the engine.
        part: that of this rank.
        features: own rows of X, in the order of ``part.nodes``.
        about: the other fields of :class:`PartGraph`: labels, splits, class names, ...
    """
    counts = part.send_counts.tolist(), part.receive_counts.tolist()
    halo = Halo(ranks, part.nodes, part.halo, part.send, *counts, part.interior)
    own: FeatureMatrix = PartDense(features.values, ranks)
    if isinstance(features, SparseMatrix):
        own = PartFeatures(features.crow, features.col, features.values, features.shape, ranks)
    matrix = ExchangedMatrix(part.crow, part.col, part.values, None, halo)
    content = {"own_nodes": part.nodes, "features": own, "adjacency": matrix}
    return PartGraph._copy({"repairs": {}, "recipe": {}, **about, **content})  # checked before it was cut


def own_share(graph: Graph, part: Part) -> dict[str, Any]:
    """Return features, labels and splits of the nodes of a part, with splits that count own nodes."""
    place = torch.full((graph.num_nodes,), -1, dtype=torch.int64)
    place[part.nodes] = torch.arange(part.nodes.numel())
    local = {name: place[getattr(graph, name)] for name in ("train", "val", "test")}
    splits = {name: nodes[nodes >= 0] for name, nodes in local.items()}
    return {"features": graph.features.select(part.nodes), "labels": graph.labels[part.nodes], **splits}
