"""The graph: features, adjacency, labels and splits, validated once and never changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from bvat.errors import GraphError
from bvat.sparse import SparseMatrix, SymmetricMatrix

UNKNOWN = -1
"""The label of a node whose class is not known."""


class GraphInputs(Protocol):
    """What a model reads of a graph: the whole of it, or the part around some nodes."""

    @property
    def features(self) -> SparseMatrix | Tensor:
        """Node features X, shape (N, D)."""

    @property
    def propagation(self) -> SparseMatrix:
        """Normalised adjacency Â, shape (N, N)."""


@dataclass(frozen=True, eq=False)
class Subgraph:
    """The part of a graph induced by some nodes, with Â's entries as they are in the whole graph.

    Its features and matrix are cut out when they are first asked for.

    Shapes: nodes int64 (m) ascending; features (m, D); propagation (m, m).
    """

    nodes: Tensor
    whole: GraphInputs

    @cached_property
    def features(self) -> SparseMatrix | Tensor:
        """Node features X, shape (m, D)."""
        x = self.whole.features
        return x.select(self.nodes) if isinstance(x, SparseMatrix) else x[self.nodes]

    @cached_property
    def propagation(self) -> SparseMatrix:
        """The rows and columns of Â, shape (m, m)."""
        return self.whole.propagation.induced(self.nodes)


@dataclass(frozen=True, eq=False, kw_only=True)
class Graph:
    """An undirected graph with node features and a few labels.

    Use :meth:`Graph.build` for data from outside: it repairs what can be repaired (directions, self-loops,
    duplicate edges) and counts it. This constructor only checks, and raises :class:`GraphError`.

    Shapes:
        features (N, D) sparse or dense, adjacency (N, N) symmetric without self-loops, labels int64 (N) with
        -1 for unknown, train / val / test int64 node indices without repeats and without overlap.
    """

    features: SparseMatrix | Tensor
    adjacency: SymmetricMatrix
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

    def __post_init__(self) -> None:
        _validate(self)

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
        **rest: Any,
    ) -> Graph:
        """Build a graph from arrays, scipy matrices or tensors, and repair its adjacency.

        Args:
            features: (N, D) numpy array, tensor, scipy matrix or :class:`SparseMatrix`.
            adjacency: (N, N) scipy matrix; directions are dropped, self-loops removed, duplicates merged.
            labels: (N) class numbers, -1 for unknown.
            train, val, test: node indices.
            class_names: names of the classes; ``"0", "1", ...`` when left out.
            normalize: scale each feature row to absolute sum 1, as the paper does.
            repairs: counts of repairs made by the caller, to be added to those made here.
            rest: ``name``, ``node_names``, ``validation``, ``notes``, ``recipe``.
        """
        clean, counts = symmetric_adjacency(adjacency)
        x = _as_features(features)
        _validate_features(x)  # before the division below spreads a NaN over its row
        if normalize:
            x = normalize_rows(x)
        for what, times in (repairs or {}).items():
            counts[what] = counts.get(what, 0) + times
        y = _as_integers("labels", labels)
        if class_names is None:
            class_names = [str(k) for k in range(int(y.max()) + 1 if y.numel() else 0)]
        return cls(
            features=x,
            adjacency=clean,
            labels=y,
            train=_as_integers("the train split", train),
            val=_as_integers("the val split", val),
            test=_as_integers("the test split", test),
            class_names=tuple(class_names),
            repairs=counts,
            **rest,
        )

    @classmethod
    def from_scipy(cls, adjacency: Any, features: Any = None, labels: Any = None, **rest: Any) -> Graph:
        """Build a graph from matrices, and make what is missing: features from the edges, a split by drawing.

        Args:
            adjacency: (N, N) scipy matrix or array, repaired as by :meth:`build`.
            features: (N, D) scipy matrix, array or tensor; None makes one-hot or degree features.
            labels: (N) class numbers with -1 for unknown, or class names with ``""`` or None for unknown.
            rest: ``train``, ``val``, ``test`` (node numbers or masks), or for a drawn split
                ``train_per_class``, ``val_size``, ``split_seed``; ``class_names``, ``node_names``, ``name``,
                ``normalize``.
        """
        from bvat.convert import from_scipy

        return from_scipy(adjacency, features, labels, **rest)

    @classmethod
    def from_pyg(cls, data: Any, **rest: Any) -> Graph:
        """Build a graph from a ``torch_geometric.data.Data``: x, edge_index, edge_weight, y and the masks.

        Args:
            data: x (N, D), edge_index (2, E), y (N) with -1 for unknown; without
                ``train_mask`` a split is drawn.
            rest: ``mask``, the column to use of masks (N, k); else as for :meth:`from_scipy`.
        """
        from bvat.convert import from_pyg

        return from_pyg(data, **rest)

    @classmethod
    def from_networkx(cls, network: Any, **rest: Any) -> Graph:
        """Build a graph from a NetworkX graph, directed or not, whose nodes have attributes.

        Args:
            network: nodes with ``label`` (unknown when left out), maybe ``split`` (train, val or test), and
                edges maybe with ``weight``.
            rest: ``label``, the attribute of the class; ``features``, the attribute that holds a list of
                numbers (default ``x``), or a list of attributes that hold numbers; else as for
                :meth:`from_scipy`.
        """
        from bvat.convert import from_networkx

        return from_networkx(network, **rest)

    def to_scipy(self) -> tuple[Any, Any, Any]:
        """Return copies of adjacency (N, N) as CSR, features (N, D) as CSR or array, and labels (N)."""
        from bvat.convert import to_scipy

        return to_scipy(self)

    def to_pyg(self) -> Any:
        """Return a ``torch_geometric.data.Data`` with dense x (N, D), edge_index (2, 2E), y and the masks."""
        from bvat.convert import to_pyg

        return to_pyg(self)

    def to_networkx(self, *, features: bool = True) -> Any:
        """Return a ``networkx.Graph`` with label, split and x (a list, left out without ``features``)."""
        from bvat.convert import to_networkx

        return to_networkx(self, features=features)

    @property
    def num_nodes(self) -> int:
        """N."""
        return int(self.labels.numel())

    @property
    def num_features(self) -> int:
        """D."""
        return int(self.features.shape[1])

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.class_names)

    @property
    def num_edges(self) -> int:
        """Number of undirected edges."""
        return self.adjacency.nnz // 2

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.labels.device

    @cached_property
    def propagation(self) -> SymmetricMatrix:
        """Â = D^-1/2 (A + I) D^-1/2, the matrix by which a GCN spreads features; shape (N, N)."""
        with_loops = self.adjacency.to_scipy() + sp.eye_array(self.num_nodes, format="csr")
        scale = 1.0 / np.sqrt(with_loops.sum(axis=1))
        normal = SparseMatrix.from_scipy(
            sp.diags_array(scale) @ with_loops @ sp.diags_array(scale), self.adjacency.dtype
        ).to(self.device)
        return SymmetricMatrix(normal.crow, normal.col, normal.values, normal.shape)

    def induced(self, nodes: Tensor) -> Subgraph:
        """Return the part on ``nodes`` (int64, ascending); Â keeps the weights it has in the whole graph."""
        return Subgraph(nodes, self)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Graph:
        """Return the graph on another device or with features in another precision."""
        moved = object.__new__(Graph)  # the contents were validated already
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, SparseMatrix):
                value = value.to(device, dtype)
            elif isinstance(value, Tensor):
                value = value.to(device=device, dtype=dtype if value.is_floating_point() else None)
            object.__setattr__(moved, f.name, value)
        return moved

    def __repr__(self) -> str:
        return (
            f"Graph({self.name!r}, {self.num_nodes} nodes, {self.num_edges} edges, "
            f"{self.num_features} features, {self.num_classes} classes, "
            f"{len(self.train)}/{len(self.val)}/{len(self.test)} train/val/test)"
        )


def normalize_rows(features: SparseMatrix | Tensor) -> SparseMatrix | Tensor:
    """Divide each row by the sum of its absolute values; rows of zeros stay as they are.

    For non-negative features this is the row normalisation of the paper. Signed features could sum to
    nearly nothing, so the absolute values are what counts.
    """
    if isinstance(features, SparseMatrix):
        total = features.values.new_zeros(features.shape[0])
        total.index_add_(0, features.rows, features.values.abs())
        return features.with_values(
            features.values / total.clamp_min(torch.finfo(total.dtype).tiny)[features.rows]
        )
    total = features.abs().sum(1, keepdim=True)
    return features / total.clamp_min(torch.finfo(total.dtype).tiny)


def symmetric_adjacency(adjacency: Any) -> tuple[SymmetricMatrix, dict[str, int]]:
    """Return A without self-loops, directions and duplicate entries, and how many of each were met.

    An edge given in both directions counts once; where the two directions carry different weights the larger
    one is kept. Duplicate entries of one direction are merged, their largest weight is kept.

    Shapes: adjacency (N, N) scipy matrix; result (N, N).
    """
    try:
        coo = sp.coo_array(adjacency)
    except ValueError as error:  # scipy finds row or column numbers outside the matrix
        raise GraphError(
            f"an edge points at a node that does not exist ({error}): remove it or add the node"
        ) from error
    if coo.shape[0] != coo.shape[1]:
        raise GraphError(f"the adjacency matrix is {coo.shape[0]} x {coo.shape[1]}: it must be square")
    size = coo.shape[0]
    row, col, weight = coo.row.astype(np.int64), coo.col.astype(np.int64), coo.data.astype(np.float64)
    stored = weight != 0
    row, col, weight = row[stored], col[stored], weight[stored]
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise GraphError("an edge weight is negative, NaN or infinite: use positive weights")
    loops = row == col
    row, col, weight = row[~loops], col[~loops], weight[~loops]
    directed = np.unique(row * size + col)
    duplicates = row.size - directed.size
    key = np.concatenate([row * size + col, col * size + row])
    order = np.lexsort((-np.concatenate([weight, weight]), key))
    key, first = np.unique(key[order], return_index=True)
    kept = np.concatenate([weight, weight])[order][first]
    matrix = (
        sp.csr_array((kept, (key // size, key % size)), shape=coo.shape) if size else sp.csr_array(coo.shape)
    )
    plain = SparseMatrix.from_scipy(matrix)
    counts = {
        "self_loops": int(loops.sum()),
        "duplicate_edges": int(duplicates),
        "one_way_edges": int(key.size - directed.size),
    }
    return SymmetricMatrix(plain.crow, plain.col, plain.values, plain.shape), counts


def _as_features(features: Any) -> SparseMatrix | Tensor:
    if isinstance(features, SparseMatrix):
        return features
    if sp.issparse(features):
        return SparseMatrix.from_scipy(features)
    if isinstance(features, Tensor):
        return features.detach().to(torch.float32, copy=True)
    return torch.from_numpy(np.array(features, dtype=np.float32))


def _as_integers(what: str, values: Any) -> Tensor:
    """Return a copy as int64 (n): a graph shall not change when the caller's arrays do."""
    given = np.asarray(values.cpu() if isinstance(values, Tensor) else values)
    if given.dtype == np.bool_:
        raise GraphError(f"{what} must be numbers, not true or false: use the positions of the true ones")
    if given.ndim != 1:
        raise GraphError(f"{what} must be a flat list, not of shape {given.shape}: give one number a node")
    if given.size and not (
        np.issubdtype(given.dtype, np.number)
        and np.isfinite(given).all()
        and (given == np.trunc(given)).all()
    ):
        raise GraphError(f"{what} must be whole numbers: number the classes and the nodes from 0")
    return torch.from_numpy(given.astype(np.int64))


def _validate(graph: Graph) -> None:
    """Raise GraphError at the first fault found."""
    x, a, y = graph.features, graph.adjacency, graph.labels
    n = y.numel()
    if n == 0:
        raise GraphError("the graph has no nodes: give at least one row of features and one label")
    if tuple(a.shape) != (n, n):
        raise GraphError(
            f"there are {n} labels but the adjacency is {a.shape[0]} x {a.shape[1]}: they must agree"
        )
    if len(x.shape) != 2 or x.shape[0] != n:
        raise GraphError(
            f"there are {n} labels but features of shape {tuple(x.shape)}: one row a node is needed"
        )
    if x.shape[1] == 0:
        raise GraphError("there are no feature columns: give features, or one-hot features for the nodes")
    if y.dim() != 1:
        raise GraphError(f"labels must be a flat list, not of shape {tuple(y.shape)}: give one a node")
    for what, matrix in (("edge", a), ("feature", x)):
        if not isinstance(matrix, SparseMatrix):
            continue
        steps = torch.diff(matrix.crow)
        if steps.numel() != matrix.shape[0] or int(matrix.crow[0]) or bool((steps < 0).any()):
            raise GraphError(f"the row pointers of the {what} matrix are broken: build it with from_scipy")
        if int(matrix.crow[-1]) != matrix.col.numel() or matrix.nnz != matrix.col.numel():
            raise GraphError(f"the {what} matrix has entries without a place: build it with from_scipy")
        if matrix.nnz:
            low, high = int(matrix.col.min()), int(matrix.col.max())
            if low < 0 or high >= matrix.shape[1]:
                bad = high if high >= matrix.shape[1] else low
                raise GraphError(
                    f"an {what} entry points at column {bad}, but there are only 0 to {matrix.shape[1] - 1}: "
                    "remove it or add what it points at"
                )
    _validate_features(x)
    _validate_adjacency(a)
    _validate_labels(graph)


def _validate_adjacency(a: SymmetricMatrix) -> None:
    if not bool(torch.isfinite(a.values).all()) or bool((a.values <= 0).any()):
        raise GraphError("an edge weight is zero, negative, NaN or infinite: use positive weights")
    loops = a.rows[a.rows == a.col]
    if loops.numel():
        raise GraphError(f"node {int(loops[0])} has an edge to itself: remove it, or use Graph.build")
    matrix = a.to_scipy()
    if (matrix != matrix.T).nnz:
        raise GraphError("the adjacency is not symmetric: add the missing directions, or use Graph.build")


def _validate_features(x: SparseMatrix | Tensor) -> None:
    if len(x.shape) != 2:
        raise GraphError(f"there are features of shape {tuple(x.shape)}: one row a node is needed")
    finite = torch.isfinite(x.values if isinstance(x, SparseMatrix) else x)
    if not bool(finite.all()):
        place = torch.nonzero(~finite)[0]
        if isinstance(x, SparseMatrix):
            row, column = int(x.rows[place[0]]), int(x.col[place[0]])
        else:
            row, column = int(place[0]), int(place[1])
        raise GraphError(
            f"the feature of node {row} in column {column} is NaN or infinite: fill it or drop it"
        )


def _validate_labels(graph: Graph) -> None:
    y, n, classes = graph.labels, graph.num_nodes, graph.num_classes
    out = torch.nonzero((y < UNKNOWN) | (y >= classes)).flatten()
    if out.numel():
        node = int(out[0])
        raise GraphError(
            f"node {node} has label {int(y[node])}, but there are {classes} classes: use 0 to {classes - 1}, "
            "or -1 for unknown"
        )
    if graph.node_names is not None and len(graph.node_names) != n:
        raise GraphError(f"there are {n} nodes but {len(graph.node_names)} node names: give one a node")
    seen = torch.zeros(n, dtype=torch.bool, device=y.device)
    for split in ("train", "val", "test"):
        nodes = getattr(graph, split)
        if nodes.numel() and (int(nodes.min()) < 0 or int(nodes.max()) >= n):
            bad = int(nodes.max()) if int(nodes.max()) >= n else int(nodes.min())
            raise GraphError(f"the {split} split names node {bad}, but nodes are 0 to {n - 1}: remove it")
        if torch.unique(nodes).numel() != nodes.numel():
            raise GraphError(f"the {split} split names a node twice: list each node once")
        twice = nodes[seen[nodes]]
        if twice.numel():
            raise GraphError(
                f"node {int(twice[0])} is in {split} and in another split too: splits must not overlap"
            )
        seen[nodes] = True
        unlabelled = nodes[y[nodes] == UNKNOWN]
        if unlabelled.numel():
            raise GraphError(
                f"node {int(unlabelled[0])} of the {split} split has no label: label it or take it out"
            )
    if graph.train.numel() == 0:
        raise GraphError(
            "no node is labelled for training: put at least one labelled node into the train split"
        )
