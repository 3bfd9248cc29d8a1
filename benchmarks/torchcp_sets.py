"""Prediction sets of TorchCP's SNAPS from the labels and predictions that bvat's sets come from.

TorchCP is no dependency: ``pip install torchcp torch_geometric`` for ``benchmarks/trust.py --torchcp``.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bvat.graph import Graph
from bvat.tuning.members import Work
from shared_work import Fitted, fitted


@lru_cache(maxsize=1)
def _snaps(work: Work) -> Any:
    """Return the score function with TorchCP's defaults: APS, 20 similar nodes, weights of a third."""
    from torch_geometric.data import Data
    from torchcp.classification.score import APS
    from torchcp.graph.score import SNAPS

    graph = work.graph
    edges = graph.adjacency.to_scipy().tocoo()
    data = Data(x=graph.features.to_dense(), y=graph.labels.clamp_min(0), num_nodes=graph.num_nodes)
    data.edge_index = torch.from_numpy(np.stack([edges.row, edges.col]).astype(np.int64))
    return data, SNAPS(
        data, APS(score_type="softmax"), features=data.x + 1e-9
    )  # a row of zeros has no direction


def snaps_sets(
    work: Work, graph: Graph, found: Fitted, coverage: float, draw: int
) -> dict[str, NDArray[np.bool_]]:
    """Return sets (N, C) by TorchCP's threshold: with bvat's held-out predictions, and as TorchCP has it.

    "out of fold" calibrates with the predictions that bvat's sets are calibrated with. "split" trains on
    every other label of a class and calibrates with the rest, as TorchCP's ``SplitPredictor`` expects.
    """
    from torchcp.graph.predictor import SplitPredictor
    from torchcp.utils.common import calculate_conformal_value

    torch.manual_seed(draw)  # APS breaks ties at random
    data, score = _snaps(work)
    labels = graph.labels

    def scores(p: Any) -> torch.Tensor:
        known: torch.Tensor = score(torch.from_numpy(p).float().clamp_min(1e-12).log())
        return known

    known = torch.cat([scores(p)[nodes, labels[nodes]] for nodes, p in found.folds])
    sets = {"snaps out of fold": scores(found.p) <= calculate_conformal_value(known, 1 - coverage)}
    by_class = [graph.train[labels[graph.train] == k] for k in range(graph.num_classes)]
    train, rest = (torch.cat([nodes[start::2] for nodes in by_class]).sort().values for start in (0, 1))
    half = fitted(work, dataclasses.replace(graph, train=train)).p
    logits = torch.from_numpy(half).float().clamp_min(1e-12).log()
    split = SplitPredictor(data, score, alpha=1 - coverage)
    split.calculate_threshold(logits, rest, split._label_mask)
    sets["snaps split"] = split.predict_with_logits(logits, torch.arange(graph.num_nodes)).bool()
    return {name: member.numpy() for name, member in sets.items()}
