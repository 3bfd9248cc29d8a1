"""The graph: features, adjacency, labels and splits, validated once and never changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from bvat.engine.cpu import find_engine
from bvat.engine.dense import DenseMatrix
from bvat.engine.sparse import SparseMatrix, SymmetricMatrix
from bvat.engine.tensor import TensorEngine
from bvat.errors import GraphError
from bvat.graph.html import html_table
from bvat.graph.inputs import FeatureMatrix, Subgraph
from bvat.graph.neighbours import Latent, nearest_nodes
from bvat.graph.repair import (
    as_features,
    as_integers,
    as_labels,
    edge_recipe,
    merged_attributes,
    normalize_rows,
    repaired_adjacency,
)
from bvat.graph.targets import OneClass, targets_of
from bvat.graph.validation import validate, validate_attributes, validate_features, validate_marks


@dataclass(frozen=True, eq=False, kw_only=True)
class Graph:
    """A graph with node features and a few labels, undirected unless ``directed``.

    Use :meth:`Graph.build` for data from outside: it repairs what can be repaired (directions, self-loops,
    duplicate edges) and counts it. This constructor only checks, and raises :class:`GraphError`.

    Shapes:
        features (N, D) sparse or dense, adjacency (N, N) symmetric without self-loops, labels int64 (N) with
        -1 for unknown, or (N, C) of 0 and 1 for several labels that may hold at once, with -1 in a whole row;
        train / val / test int64 node indices without repeats and without overlap.
    """

    features: FeatureMatrix
    adjacency: SparseMatrix
    """Row i has the weights of the nodes that node i reads: its neighbours, or in a directed graph the nodes
    from which an edge leads to i."""
    labels: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    class_names: tuple[str, ...]
    name: str = "graph"
    node_names: tuple[str, ...] | None = None
    validation: str = "given"
    """Where the validation labels come from; every result repeats it."""
    repairs: Mapping[str, int] = field(default_factory=dict)
    """How many self-loops, duplicate edges, ... were put right when the graph was built."""
    notes: tuple[str, ...] = ()
    """What a reader has to tell the user, a sentence each: features it made, labels it left out, ..."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """How a reader made the features, in plain values, so that another graph can be read in the same way."""
    splits: Tensor | None = None
    """All splits that the graph came with if there are several: int8 (S, N), 1 for a training node, 2 for
    validation, 3 for testing, 0 for none; see :meth:`with_split`."""
    directed: bool = False
    """Whether edges have a direction; ``recipe`` repeats it, for reading other graphs."""
    edge_attr: Tensor | None = None
    """Attributes of the edges, (nnz, F): a row for each entry of ``adjacency``, in the order of its rows."""

    def __post_init__(self) -> None:
        if isinstance(self.features, Tensor):
            object.__setattr__(self, "features", DenseMatrix(self.features))
        if self.features.dtype == torch.float64 != self.adjacency.dtype:
            object.__setattr__(self, "adjacency", self.adjacency.to(dtype=torch.float64))
        if self.directed:
            object.__setattr__(self, "adjacency", SparseMatrix.of(self.adjacency))
        if self.edge_attr is not None:
            validate_attributes(self.edge_attr, self.adjacency)
            object.__setattr__(self, "edge_attr", self.edge_attr.to(self.features.dtype))
        recipe = edge_recipe(self.recipe, self.edge_attr, directed=self.directed)
        object.__setattr__(self, "recipe", recipe)
        splits = {"train": self.train, "val": self.val, "test": self.test}
        names = ("class_names", "node_names", "name", "validation", "notes")
        if self.splits is not None:
            validate_marks(self.splits, len(self.labels))
        about = {name: getattr(self, name) for name in names}
        validate(self.features, self.adjacency, self.labels, splits, about, directed=self.directed)

    @classmethod
    def build(
        cls,
        features: Any,
        adjacency: Any,
        labels: Any,
        *,
        train: Any,
        val: Any = (),
        test: Any = (),
        class_names: Sequence[str] | None = None,
        normalize: bool = True,
        repairs: Mapping[str, int] | None = None,
        directed: bool = False,
        edge_attr: Any = None,
        **rest: Any,
    ) -> Graph:
        """Build a graph from arrays, scipy matrices or tensors, and repair its adjacency.

        Args:
            features: (N, D) numpy array, tensor, scipy matrix or :class:`SparseMatrix`.
            adjacency: (N, N) scipy matrix; directions are dropped, self-loops removed, duplicates merged.
                With ``directed`` row i has the nodes that node i reads, those from which an edge leads to i.
            labels: (N) class numbers, -1 for unknown; or (N, C) of 0 and 1 for several labels per node.
            train, val, test: node indices.
            class_names: names of the classes; ``"0", "1", ...`` when left out.
            normalize: scale each feature row to absolute sum 1, as the paper does.
            repairs: counts of repairs made by the caller, to be added to those made here.
            directed: whether edges keep their direction, see :attr:`propagation`.
            edge_attr: (E) or (E, F), attributes of the stored entries of ``adjacency`` in its COO order.
            rest: ``name``, ``node_names``, ``validation``, ``notes``, ``recipe``.
        """
        clean, counts = repaired_adjacency(adjacency, directed=directed)
        attributes, _ = merged_attributes(sp.coo_array(adjacency), edge_attr, clean)
        x = as_features(features)
        validate_features(x)  # before the division below spreads a NaN over its row
        if normalize:
            x = normalize_rows(x)
        for what, times in (repairs or {}).items():
            counts[what] = counts.get(what, 0) + times
        y, splits = as_labels(labels), dict[str, Any]()
        for name, nodes in (("train", train), ("val", val), ("test", test)):
            splits[name] = as_integers(f"the {name} split", nodes)
        if class_names is None:
            several = y.shape[-1] if y.dim() == 2 else int(y.max()) + 1 if y.numel() else 0
            class_names = [str(k) for k in range(several)]
        return cls(
            features=x,
            adjacency=clean,
            labels=y,
            **splits,
            class_names=tuple(class_names),
            repairs=counts,
            directed=directed,
            edge_attr=attributes,
            **rest,
        )

    @property
    def num_nodes(self) -> int:
        return len(self.labels)

    @property
    def num_features(self) -> int:
        return int(self.features.shape[1])

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def targets(self) -> OneClass:
        """What is predicted of a node: one class, or several labels."""
        return targets_of(self.labels)

    @property
    def labelled(self) -> Tensor:
        """Which nodes have a label, bool (N)."""
        return torch.as_tensor(self.targets.known(self.labels))

    @property
    def num_edges(self) -> int:
        """Number of edges; an undirected one counts once."""
        return self.adjacency.nnz // (1 if self.directed else 2)

    @property
    def device(self) -> torch.device:
        return self.labels.device

    @cached_property
    def propagation(self) -> SparseMatrix:
        """Â = D^-1/2 (A + I) D^-1/2, the matrix by which a GCN spreads features; shape (N, N).

        Of a directed graph Â = D^-1 (A + I), the mean over a node and the nodes from which an edge leads to
        it: the numbers of edges that lead to a node and away from it have nothing to do with each other.
        """
        with_loops = self.adjacency.to_scipy() + sp.eye_array(self.num_nodes, format="csr")
        if self.directed:
            return self._matrix(sp.diags_array(1.0 / with_loops.sum(axis=1)) @ with_loops, SparseMatrix)
        scale = sp.diags_array(1.0 / np.sqrt(with_loops.sum(axis=1)))
        return self._matrix(scale @ with_loops @ scale, SymmetricMatrix)

    @cached_property
    def edge_inputs(self) -> Tensor | None:
        """``edge_attr`` for the entries of Â, (nnz, F); on the diagonal the mean of the row, or 0."""
        if self.edge_attr is None:
            return None
        rows, size = self.adjacency.rows, self.num_nodes
        sums = self.edge_attr.new_zeros(size, self.edge_attr.shape[1]).index_add_(0, rows, self.edge_attr)
        means = sums / torch.bincount(rows, minlength=size).clamp_min(1)[:, None]
        diagonal = self.propagation.rows == self.propagation.col
        found = means[self.propagation.rows]
        found[~diagonal] = self.edge_attr
        return found

    @property
    def engine(self) -> TensorEngine:
        """What computes on the graph: compiled loops on a CPU with numba, tensor operations elsewhere."""
        return self.features.engine

    def with_engine(self, engine: Literal["tensor", "compiled"] | TensorEngine) -> Self:
        """Return the graph with another engine, for example "tensor" for debugging."""
        found = find_engine(engine)
        changed = self._with(
            features=self.features.with_engine(found), adjacency=self.adjacency.with_engine(found)
        )
        changed.__dict__["propagation"] = self.propagation.with_engine(found)
        return changed

    @cached_property
    def as_data(self) -> SimpleNamespace:
        """x (N, D), edge_index (2, E), edge_weight (E), None if all are 1, edge_attr (E, F), None without.

        Named as in torch_geometric's Data.
        """
        weighted = bool((self.adjacency.values != 1).any())
        return SimpleNamespace(
            x=self.features.to_dense(),
            edge_index=torch.stack([self.adjacency.col.long(), self.adjacency.rows]),
            edge_weight=self.adjacency.values if weighted else None,
            edge_attr=self.edge_attr,
        )

    @property
    def num_splits(self) -> int:
        return 1 if self.splits is None else len(self.splits)

    def with_split(self, number: int) -> Self:
        """Return the graph with one of the splits that it came with, counted from 0."""
        if not 0 <= number < self.num_splits:
            raise GraphError(f"{self.name} has {self.num_splits} splits: use 0 to {self.num_splits - 1}")
        if self.splits is None:
            return self
        parts = [torch.nonzero(self.splits[number] == mark).flatten() for mark in (1, 2, 3)]
        said = f"given: split {number + 1} of {self.num_splits}"
        return replace(self, train=parts[0], val=parts[1], test=parts[2], validation=said)

    def with_features(self, features: FeatureMatrix) -> Self:
        """Return the graph with other features (N, D') that are known to be valid."""
        changed = self._with(features=features)
        changed.__dict__["propagation"] = self.propagation  # depends on the edges only
        return changed

    def scaled(self, factor: float) -> Self:
        return self.with_features(self.features.with_values(self.features.values * factor))

    def column_variances(self) -> Tensor:
        """Return the variance of each column of X, float64 (D)."""
        return self.features.column_variances()

    def batch(self, epoch: int) -> Graph:
        """Return what an epoch trains on: the graph itself, unless not all of it is in memory."""
        return self

    def pieces(self) -> Iterator[Graph]:
        """Yield what has all nodes together, in their order: the graph itself, unless memory is short."""
        yield self

    @classmethod
    def _copy(cls, content: Mapping[str, Any]) -> Self:
        """Return a graph of contents that were validated already."""
        graph = object.__new__(cls)
        for name, value in content.items():
            object.__setattr__(graph, name, value)
        return graph

    def _with(self, **changed: Any) -> Self:
        """Return the graph with other fields that are known to be valid."""
        return self._copy({f.name: getattr(self, f.name) for f in fields(self)} | changed)

    def with_feature_neighbours(
        self, k: int = 10, *, metric: str = "cosine", keep_edges: bool = False, latent: Latent | None = None
    ) -> Self:
        """Return the graph with an edge between nodes whose features are among the k most similar.

        Everything works on the result as on any graph: receptive fields, perturbations, audits.

        Args:
            k: neighbours that each node chooses; it may be chosen by more.
            metric: "cosine" or "euclidean", of the latent features, see :class:`bvat.graph.Latent`.
            keep_edges: whether the given edges stay; by default the new ones replace them.
            latent: the latent dimensions; by default those of this graph's features.
        """
        rows = (latent or Latent.fit(self.features)).rows(self.features)
        similar = self._with_edges(nearest_nodes(rows, k, metric))
        return self.joined(similar) if keep_edges else similar

    def joined(self, other: Graph) -> Self:
        """Return the graph with the edges of another one of the same nodes too; the larger weight counts.

        Edge attributes are left out: edges between similar nodes have none.
        """
        both = self.adjacency.to_scipy().maximum(other.adjacency.to_scipy())
        return self._with_edges(both, directed=self.directed or other.directed)

    def _matrix(self, edges: Any, kind: type[SparseMatrix]) -> SparseMatrix:
        """Return a scipy matrix (N, N) in the precision, on the device and with the engine of the graph."""
        matrix = SparseMatrix.from_scipy(edges, self.adjacency.dtype).to(self.device)
        return kind.of(matrix, self.engine)

    def _with_edges(self, edges: Any, *, directed: bool = False) -> Self:
        made = self._matrix(edges, SparseMatrix if directed else SymmetricMatrix)
        recipe = edge_recipe(self.recipe, None, directed=directed)
        return self._with(adjacency=made, directed=directed, edge_attr=None, recipe=recipe)

    def induced(self, nodes: Tensor) -> Subgraph:
        """Return the part on ``nodes`` (int64, ascending); Â keeps the weights it has in the whole graph."""
        return Subgraph(nodes, self)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Graph:
        """Return the graph on another device or with features in another precision."""
        moved: dict[str, Any] = {}
        for name, value in vars(self._with()).items():
            if isinstance(value, FeatureMatrix):
                moved[name] = value.to(device, dtype)
            elif isinstance(value, Tensor):
                moved[name] = value.to(device=device, dtype=dtype if value.is_floating_point() else None)
        return self._with(**moved)

    def _repr_html_(self) -> str:
        shown = ", ".join(self.class_names[:10]) + (", ..." if self.num_classes > 10 else "")
        return html_table(
            f"Graph {self.name}",
            {
                "nodes": f"{self.num_nodes:,}",
                "edges": f"{self.num_edges:,}" + " directed" * self.directed,
                "features": f"{self.num_features:,}",
                self.targets.name: f"{self.num_classes} ({shown})",
                "training nodes": f"{len(self.train):,}",
                "validation nodes": f"{len(self.val):,} ({self.validation})",
                "test nodes": f"{len(self.test):,}",
            },
        )

    def __repr__(self) -> str:
        edges = f"{self.num_edges} {'directed ' * self.directed}edges"
        return (
            f"Graph({self.name!r}, {self.num_nodes} nodes, {edges}, "
            f"{self.num_features} features, {self.num_classes} {self.targets.name}, "
            f"{len(self.train)}/{len(self.val)}/{len(self.test)} train/val/test)"
        )
