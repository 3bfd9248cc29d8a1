"""What baselines share: the fitted model, the part of a graph that an inductive one may see, selection."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bvat.engine.sparse import SparseMatrix
from bvat.errors import GraphError
from bvat.graph import Graph
from bvat.graph.inputs import FeatureMatrix
from bvat.models.ensemble import Tensors

LEAST = 1e-9
"""The smallest probability: weights and logits stay finite."""

Result = TypeVar("Result")
Once = Callable[[str, Callable[[], Tensor]], Tensor]
"""Computes once, for a graph and a seed, what several baselines need, by name; the caller may change it."""


def always(name: str, compute: Callable[[], Tensor]) -> Tensor:
    return compute()


@dataclass
class Fit:
    """A fitted baseline: ``model`` maps a graph to logits (N, C)."""

    model: nn.Module
    chosen: dict[str, Any] = field(default_factory=dict)
    """The hyper-parameters chosen on the validation nodes."""
    unscored: Tensor | None = None
    """Nodes that got the most common training class because nothing is known about them, bool (N)."""
    report: dict[str, Any] = field(default_factory=dict)
    """What else a run shows of the fit, in plain values."""


class Frozen(Tensors):
    """A model made of tensors that were fitted already; whole numbers are buffers."""

    shapes: ClassVar[dict[str, str]] = {}
    """The shape of each parameter: D features, C classes, B = 2 C, other letters for any size."""
    whole_numbers: ClassVar[tuple[str, ...]] = ()
    """The names of the buffers."""

    def __init__(self, **tensors: Tensor) -> None:
        if tensors.keys() != {*self.shapes, *self.whole_numbers}:
            raise TypeError(f"the tensors of {type(self).__name__} are {', '.join(self.shapes)}")
        super().__init__(tensors)

    def check(self, features: int, classes: int) -> None:
        """Raise ValueError unless the parameters fit D features, C classes and each other."""
        found, sizes = dict(self.named_parameters()), {"D": features, "C": classes, "B": 2 * classes}
        for name, letters in self.shapes.items():
            shape = tuple(found[name].shape) if name in found else ()
            known = zip(letters, shape, strict=False)
            if len(shape) != len(letters) or any(sizes.setdefault(k, size) != size for k, size in known):
                raise ValueError(f"{name} has shape {shape}")
        if {parameter.dtype for parameter in found.values()} not in ({torch.float32}, {torch.float64}):
            raise ValueError("its parameters are not all float32 or all float64")


class NodeTable(Frozen):
    """The probabilities of the nodes of one graph.

    Shapes: log_p (N, C), graph int64 (4), what identifies the nodes and edges.
    """

    shapes: ClassVar = {"log_p": "NC"}
    whole_numbers: ClassVar = ("graph",)
    log_p: Tensor
    graph: Tensor

    def forward(self, graph: Graph) -> Tensor:
        """Return log p (N, C); GraphError for any other graph."""
        whole = self.graph.dtype == torch.int64 and self.log_p.shape[0] == graph.num_nodes
        if not whole or not torch.equal(edge_digest(graph), self.graph.cpu()):
            raise GraphError(
                f"{graph.name} has other nodes or edges than the graph of the run, and a transductive method "
                "predicts only what it was fitted to: fit it to this graph with bvat train, or use manireg, "
                "semiemb, planetoid-i or gcn"
            )
        return self.log_p


def edge_digest(graph: Graph) -> Tensor:
    """Return the sha256 of the edges and their weights as int64 (4)."""
    found = hashlib.sha256()
    weights = graph.adjacency.values.detach().float()
    for part in (graph.adjacency.crow, graph.adjacency.col, weights):
        found.update(part.cpu().contiguous().numpy().tobytes())
    return torch.from_numpy(np.frombuffer(found.digest(), np.int64).copy())


def node_table(graph: Graph, scores: NDArray[Any] | Tensor, chosen: dict[str, Any]) -> Fit:
    """Return a fit from scores that are not negative, (N, C); rows of zeros get the training frequencies."""
    scores = torch.as_tensor(scores).double()
    unscored = scores.sum(1) <= 0
    counts = torch.bincount(graph.labels[graph.train], minlength=graph.num_classes).double()
    scores = torch.where(unscored[:, None], counts, scores)
    log_p = (scores / scores.sum(1, keepdim=True)).clamp_min(LEAST).log().to(graph.features.dtype)
    model = NodeTable(log_p=log_p, graph=edge_digest(graph))
    return Fit(model, chosen, unscored)


def validation_accuracy(graph: Graph, scores: NDArray[Any] | Tensor) -> float:
    """Return the share of validation nodes whose largest score is at their label; 0 without any."""
    if not graph.val.numel():
        return 0.0
    predicted = torch.as_tensor(scores)[graph.val].argmax(1)
    return float((predicted == graph.labels[graph.val]).double().mean())


def choose(
    graph: Graph, *grid: tuple[float, ...], fit: Callable[..., tuple[float, Result]]
) -> tuple[tuple[float, ...], Result]:
    """Fit all combinations; return the first with the highest score, and its result.

    ``grid`` has one tuple per argument of ``fit``, which returns a score on the validation nodes and what was
    fitted. Only the first choices are fitted where no validation nodes can decide.
    """
    choices = product(*grid if graph.val.numel() else (values[:1] for values in grid))
    fitted = ((choice, *fit(*choice)) for choice in choices)
    best, _, result = max(fitted, key=lambda found: found[1])  # of equal scores the first
    return best, result


def glorot(inputs: int, outputs: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Return weights drawn as Glorot and Bengio do, (inputs, outputs)."""
    limit = (6 / (inputs + outputs)) ** 0.5
    values: Tensor = (2 * torch.rand(inputs, outputs, generator=generator) - 1) * limit
    return values.to(dtype)


@dataclass(frozen=True)
class VisiblePart:
    """A graph without its validation and test nodes, for baselines that must not see them.

    Validation nodes are hidden too: a smoothness term that reads them makes their labels easy, and what is
    chosen on them then fails on the test nodes.

    Shapes: nodes int64 (m), features (m, D), adjacency scipy (m, m), train int64 (t) and labels int64 (t).
    """

    nodes: Tensor
    features: FeatureMatrix
    adjacency: Any
    train: Tensor
    labels: Tensor


def visible_part(graph: Graph, features: FeatureMatrix) -> VisiblePart:
    """Return what is left without validation and test nodes; features (N, D) are those of the graph."""
    every = torch.arange(graph.num_nodes)
    nodes = every[~torch.isin(every, torch.cat([graph.val, graph.test]))]
    part = graph.adjacency.to_scipy()[nodes.numpy()][:, nodes.numpy()]
    train = torch.searchsorted(nodes, graph.train.contiguous())
    return VisiblePart(nodes, features.select(nodes), part, train, graph.labels[graph.train])


def used_columns(features: FeatureMatrix) -> Tensor:
    """Return the columns that are not zero everywhere, int64 in ascending order."""
    if isinstance(features, SparseMatrix):
        return torch.from_numpy(np.unique(features.col[features.values != 0].numpy()).astype(np.int64))
    return features.values.any(0).nonzero().flatten()


def take_columns(features: FeatureMatrix, columns: Tensor) -> FeatureMatrix:
    """Return some columns (N, d) of features (N, D); columns int64 (d)."""
    if isinstance(features, SparseMatrix):
        return SparseMatrix.from_scipy(features.to_scipy()[:, columns.numpy()], features.dtype)
    return features.with_values(features.values[:, columns])


def largest_one(features: FeatureMatrix) -> FeatureMatrix:
    """Divide each row by its largest entry: features of 0 and 1 get these values back."""
    values = features.values.abs()
    if isinstance(features, SparseMatrix):
        top = values.new_zeros(features.shape[0]).scatter_reduce_(0, features.rows.long(), values, "amax")
    else:
        top = values.amax(1)
    return features.divide_rows(torch.where(top > 0, top, 1))
