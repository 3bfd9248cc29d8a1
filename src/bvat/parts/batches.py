"""Training on a few parts at a time, for graphs with more parts than fit memory at once.

Every epoch makes one step on ``q`` parts drawn at random, with all edges between them; edges to parts outside
the batch are dropped, as in Cluster-GCN (Chiang et al., 2019, https://arxiv.org/abs/1905.07953), while Â
keeps the weights of the whole graph. Evaluation goes through all parts in batches of ``q`` in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.parts.folder import described, read_about, read_part, read_parts
from bvat.parts.part_graph import CutGraph
from bvat.parts.parts import Part, stack, stack_features, symmetric


@dataclass(frozen=True, eq=False, kw_only=True)
class PartsGraph(CutGraph):
    """All parts of a folder, of which a few are in memory at a time; nodes are in the order of the parts.

    ``features`` and ``adjacency`` are those of the first batch: only their precision and width are used.
    """

    folder: str
    about: dict[str, Any]
    size: int
    """q, the number of parts in a batch."""
    order: Tensor
    """Numbers in the whole graph of the nodes, int64 (N)."""
    seed: int = 0
    factor: float = 1.0
    """The features are multiplied by it."""

    @property
    def fingerprint(self) -> str:
        return str(self.about["graph"])

    @property
    def num_edges(self) -> int:
        return int(self.about["edges"])

    def batch(self, epoch: int) -> Graph:
        """Return the batch of an epoch, which has at least one part with labels to train on."""
        chance = np.random.default_rng([self.seed, epoch])
        chosen = chance.permutation(self.about["parts"])[: self.size]
        labelled = [row for row in range(self.about["parts"]) if self.about["table"][row]["train"]]
        if not set(chosen.tolist()) & set(labelled):
            chosen[0] = chance.choice(labelled)
        return _load(self, sorted(chosen.tolist()))

    def pieces(self) -> Iterator[Graph]:
        """Yield batches that have all parts together, in their order."""
        for start in range(0, self.about["parts"], self.size):
            yield _load(self, range(start, min(start + self.size, self.about["parts"])))

    def scaled(self, factor: float) -> PartsGraph:
        return self._with(factor=factor * self.factor)


def open_batches(folder: Path, size: int, seed: int = 0) -> PartsGraph:
    """Return the graph in a folder of parts for training on ``size`` parts at a time."""
    parts = read_about(folder)["parts"]
    if not 1 <= size <= parts:
        raise SettingsError(f"--batch-parts must be 1 to {parts}, the parts of {folder}, not {size}")
    about, shares, splits = read_parts(folder)
    order = torch.cat([part.nodes for part, _, _ in shares])
    place = torch.argsort(order)
    for row, (_, _, rest) in zip(about["table"], shares, strict=True):
        row["train"] = rest["train"].numel()
    content: dict[str, Any] = {
        "labels": torch.cat([rest["labels"] for _, _, rest in shares]),
        **{name: place[splits[name]] for name in ("train", "val", "test")},
        "node_names": None,
        **described(about),
        "folder": str(folder),
        "about": about,
        "size": size,
        "order": order,
        "seed": seed,
        "factor": 1.0,
    }
    first = _load(PartsGraph._copy(content), range(1))
    return PartsGraph._copy({**content, "features": first.features, "adjacency": first.propagation})


def _load(graph: PartsGraph, numbers: Sequence[int]) -> Graph:
    """Return some parts as a graph: Â without the entries to other parts."""
    folder, about = Path(graph.folder), graph.about
    shares = [read_part(folder, number, about, verified=False) for number in numbers]
    starts = np.cumsum([0, *(part.nodes.numel() for part, _, _ in shares)])
    local = torch.full((int(graph.about["nodes"]),), -1, dtype=torch.int64)
    for (part, _, _), start in zip(shares, starts, strict=False):
        local[part.nodes] = torch.arange(start, start + part.nodes.numel())
    size = int(starts[-1])
    matrix = symmetric(stack([_rows(part, local) for part, _, _ in shares], (size, size)))
    splits = {}
    for name in ("train", "val", "test"):
        moved = [rest[name] + int(start) for (_, _, rest), start in zip(shares, starts, strict=False)]
        splits[name] = torch.cat(moved)
    content: dict[str, Any] = {f.name: getattr(graph, f.name, None) for f in fields(Graph)}
    content |= {"features": stack_features([x for _, x, _ in shares], graph.factor), "adjacency": matrix}
    made = Graph._copy({**content, **splits, "labels": torch.cat([rest["labels"] for _, _, rest in shares])})
    made.__dict__["propagation"] = matrix
    return made


def _rows(part: Part, local: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return counts, columns and values of the rows of a part, without entries outside the batch."""
    rows, numbers = part.entries()
    columns = local[numbers]
    kept = columns >= 0
    return torch.bincount(rows[kept], minlength=part.nodes.numel()), columns[kept], part.values[kept]
