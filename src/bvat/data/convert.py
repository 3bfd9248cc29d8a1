"""Convert graphs from and to PyTorch Geometric and scipy, and from NetworkX.

PyTorch Geometric is imported on first use; the extra ``bvat[pyg]`` installs it.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from bvat.data.readers.assemble import AVERAGED, UNEQUAL_WEIGHTS, assemble
from bvat.data.readers.benchmark import given_splits
from bvat.data.readers.classes import Classes, array_classes, class_name, require_classes
from bvat.data.readers.edges import GivenEdges
from bvat.data.readers.features import Features, row_normalised
from bvat.data.readers.matrices import finite, is_sparse
from bvat.data.splits import PARTS, ReadOptions, Split, marks
from bvat.errors import DataError, GraphError
from bvat.graph import UNKNOWN, Graph
from bvat.graph.inputs import FeatureMatrix

_USED = {
    "x",
    "y",
    "edge_index",
    "edge_weight",
    "edge_attr",
    "num_nodes",
    *(f"{part}_mask" for part in PARTS),
}
"""What :func:`from_pyg` takes of ``Data``."""


def from_scipy(
    adjacency: Any,
    features: Any = None,
    labels: Any = None,
    *,
    train: Any = None,
    val: Any = (),
    test: Any = (),
    class_names: Sequence[str] | None = None,
    node_names: Sequence[str] | None = None,
    name: str = "graph",
    normalize: bool = True,
    train_per_class: int | None = None,
    val_size: int | None = None,
    test_size: int | None = None,
    split_seed: int = 0,
    directed: bool = False,
    edge_attr: Any = None,
) -> Graph:
    """Build a graph from matrices. Missing features are made from the edges.

    Args:
        adjacency: (N, N) scipy matrix or array, repaired as in :meth:`bvat.Graph.build`.
        features: (N, D) scipy matrix, array or tensor; None makes one-hot or degree features.
        labels: (N) class numbers with -1 for unknown, or class names with ``""`` or None for unknown; (N, C)
            of 0 and 1 if nodes have several labels, -1 in a whole row for unknown; may be left out with
            ``class_names``, for a graph that is only to be predicted.
        train, val, test: node indices or boolean masks (N); without ``train``, all labelled nodes are
            training nodes, unless the sizes below hold some of them out.
        class_names: names of the classes.
        node_names: names of the nodes.
        name: name of the graph.
        normalize: scale each feature row to absolute sum 1.
        train_per_class, val_size, test_size, split_seed: how to draw a split, see :func:`bvat.load`.
        directed: whether edges keep their direction; entry (i, j) is an edge from i to j.
        edge_attr: (E) or (E, F), attributes of the stored entries of ``adjacency`` in its COO order.

    Example:
        >>> import scipy.sparse as sp
        >>> ring = sp.diags_array([1.0, 1.0], offsets=[1, 5], shape=(6, 6))
        >>> bvat.from_scipy(ring, labels=["a", "b"] * 3, train=[0, 1], test=[4, 5])
        Graph('graph', 6 nodes, 6 edges, 6 features, 2 classes, 2/0/2 train/val/test)
    """
    edges = _square(adjacency)
    size = edges.shape[0]
    classes = _classes(labels, size, class_names)
    if train is None:
        require_classes(classes, "labels")
    return assemble(
        name=name,
        classes=classes,
        edges=GivenEdges(edges, edge_attr),
        features=None if features is None else _matrix(features, size, normalize),
        splits=[] if train is None else [Split(_nodes(train, size), _nodes(val, size), _nodes(test, size))],
        options=ReadOptions(None, train_per_class, val_size, split_seed, test_size, directed),
        node_names=None if node_names is None else [str(node) for node in node_names],
    )


def to_scipy(graph: Graph) -> tuple[Any, Any, NDArray[np.int64]]:
    """Return copies of adjacency (N, N) as CSR, features (N, D) as CSR or array, and labels (N) or (N, C).

    Entry (i, j) of the adjacency is an edge from i to j.
    """
    labels: NDArray[np.int64] = graph.labels.cpu().numpy().copy()
    edges = graph.adjacency.to_scipy()
    return (edges.T.tocsr() if graph.directed else edges.copy()), graph.features.to_scipy().copy(), labels


def refuse_several_kinds(data: Any) -> None:
    if hasattr(data, "node_types") or isinstance(getattr(data, "x", None), tuple | dict):
        raise GraphError(
            "data with several kinds of nodes (HeteroData, bipartite) is not supported: use "
            "data.to_homogeneous(), or regularise a function of the features of one kind, "
            "regulariser(lambda x: model(...), x, logits)"
        )


def from_pyg(data: Any, *, mask: int = 0, **rest: Any) -> Graph:
    """Build a graph from a ``torch_geometric.data.Data``: x, edges, their weights and attributes, y, masks.

    A warning and ``graph.notes`` name what the graph does not hold: directions (unless ``directed=True``),
    further attributes, float64.

    Args:
        data: x (N, D), edge_index (2, E), y (N) with -1 for unknown, or (N, C) of 0 and 1; without
            ``train_mask``, all labelled nodes are training nodes.
        mask: which column to use when the masks are of shape (N, k); ``graph.splits`` keeps all.
        rest: as for :func:`from_scipy`.
    """
    refuse_several_kinds(data)
    x, labels, weight = (getattr(data, key, None) for key in ("x", "y", "edge_weight"))
    if labels is not None and labels.dim() == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    masks: dict[str, Any] = {}
    if "train" not in rest and getattr(data, "train_mask", None) is not None:
        given = {part: getattr(data, f"{part}_mask", None) for part in PARTS}
        rest |= {part: _masked(given[part], mask, part) for part in PARTS}
        masks = {part: None if each is None else each.cpu().numpy() for part, each in given.items()}
    unused = [key for key, value in data.to_dict().items() if key not in _USED and value is not None]
    lost = _unused("attributes", unused)
    if x is not None and x.dtype == torch.float64:
        lost.append("x is float64 and was rounded to float32")
    if x is not None and x.layout != torch.strided:
        coo = x.to_sparse(sparse_dim=2).coalesce().cpu()
        x = sp.coo_array((coo.values().numpy(), tuple(coo.indices().numpy())), shape=tuple(x.shape))
    rest = {"edge_attr": getattr(data, "edge_attr", None), **rest}
    graph = from_scipy(_pyg_adjacency(data, weight), x, labels, **rest)
    if "train" in masks:
        every = given_splits(masks, graph.labels.numpy(), graph.name)
        graph = dataclasses.replace(graph, splits=marks(every, graph.num_nodes))
    return _told(graph, lost, directed=True)


def _pyg_adjacency(data: Any, weight: Tensor | None) -> Any:
    """Return the edges (N, N) after checking that they are pairs of nodes with one weight each."""
    edge_index = getattr(data, "edge_index", None)
    if edge_index is None or edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise GraphError("the data has no edge_index of shape (2, E): give edges as pairs of node numbers")
    size, ends = int(data.num_nodes or 0), edge_index.cpu().numpy()
    values = np.ones(ends.shape[1]) if weight is None else weight.detach().cpu().numpy().ravel()
    try:
        return sp.coo_array((values, (ends[0], ends[1])), shape=(size, size))
    except ValueError as error:
        raise GraphError(
            f"edge_index or edge_weight is wrong ({error}): give pairs of nodes from 0 to {size - 1}, and "
            "one weight per edge"
        ) from None


def to_pyg(graph: Graph) -> Any:
    """Return a ``torch_geometric.data.Data`` with dense x (N, D), edge_index (2, 2E), y and the masks."""
    try:
        from torch_geometric.data import Data
    except ImportError:
        raise DataError("this needs torch_geometric: install bvat[pyg]") from None
    found = {name: value.clone() for name, value in vars(graph.as_data).items() if value is not None}
    data = Data(**found, y=graph.labels.clone())
    if not graph.directed:
        data.edge_index = data.edge_index.flip(0)  # in the order of the first row, as PyG has it
    for part in PARTS:
        chosen = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.device)
        chosen[getattr(graph, part)] = True
        data[f"{part}_mask"] = chosen
    return data


def from_networkx(
    network: Any, *, label: str = "label", features: str | Sequence[str] | None = None, **rest: Any
) -> Graph:
    """Build a graph from a NetworkX graph, directed or undirected, with node attributes.

    A warning and ``graph.notes`` name what the graph does not hold: directions (unless ``directed=True``) and
    further edge attributes.

    Args:
        network: nodes have ``label`` (unknown if missing) and optionally ``split`` (train, val or test);
            edges optionally have ``weight``.
        label: the attribute that holds the class.
        features: the attribute that holds a list of numbers (default ``x``), or several attributes that hold
            one number each.
        rest: as for :func:`from_scipy`.
    """
    nodes = list(network.nodes)
    if rest.get("directed") and not network.is_directed():
        raise GraphError("the network has no directions: leave directed out, or use network.to_directed()")
    if not nodes:
        raise GraphError("the network has no nodes: add nodes with labels")
    names = [str(node) for node in nodes]
    if len(set(names)) < len(names):
        raise GraphError(
            "two nodes have the same name when written as text: rename nodes with networkx.relabel_nodes"
        )
    place, edges = {node: k for k, node in enumerate(nodes)}, list(network.edges(data=True))
    try:
        weights = np.array([about.get("weight", 1) for _, _, about in edges], dtype=np.float64)
    except (TypeError, ValueError):
        raise GraphError("an edge has a weight that is not a number: use positive numbers") from None
    labels = [class_name(network.nodes[node].get(label)) for node in nodes]
    if "train" not in rest:
        rest |= _network_split(network, nodes)
    matrix = _network_features(network, nodes, features)
    ends = np.array([(place[u], place[v]) for u, v, _ in edges], dtype=np.int64).reshape(-1, 2)
    adjacency = sp.coo_array((weights, tuple(ends.T)), shape=(len(nodes), len(nodes)))
    graph = from_scipy(adjacency, matrix, labels, **{"node_names": names, **rest})
    unused = dict.fromkeys(str(key) for _, _, about in edges for key in about if key != "weight")
    return _told(graph, _unused("edge attributes", list(unused)), directed=network.is_directed())


def _unused(what: str, names: Sequence[str]) -> list[str]:
    """Return the note that names what a conversion leaves out, if there is anything."""
    some = ", ".join(names[:6]) + (" ..." if len(names) > 6 else "")
    return [f"{what} that are not used: {some}"] if names else []


def _told(graph: Graph, lost: list[str], *, directed: bool) -> Graph:
    """Return the graph with notes of what its conversion has lost, and warn of it.

    With ``directed``, an edge that is given in one direction only is meant to have that direction.
    """
    one_way = graph.repairs["one_way_edges"]
    if directed and one_way:
        lost = [*lost, f"edges that are given in one direction only and count in both: {one_way:,}"]
    told = [*lost, *(note for note in graph.notes if note.startswith((UNEQUAL_WEIGHTS, AVERAGED)))]
    if told:
        warnings.warn(f"{graph.name}: {'; '.join(told)}", stacklevel=3)
    return dataclasses.replace(graph, notes=(*lost, *graph.notes)) if lost else graph


def _square(adjacency: Any) -> Any:
    try:
        edges = sp.coo_array(adjacency)
    except (ValueError, TypeError) as error:
        raise GraphError(
            f"the adjacency is not a matrix ({error}): give a scipy matrix of shape (N, N)"
        ) from None
    if edges.ndim != 2 or edges.shape[0] != edges.shape[1] or not edges.shape[0]:
        raise GraphError(f"the adjacency has shape {edges.shape}: it must be square, with one row per node")
    if edges.dtype.kind not in "biuf":
        raise GraphError(f"the adjacency holds {edges.dtype}: use positive weights")
    return edges


def _classes(labels: Any, size: int, class_names: Sequence[str] | None) -> Classes:
    """Turn labels, numbers or names, into classes; numbers stay as they are."""
    if labels is None and not class_names:
        raise GraphError(
            "there are no labels: give one per node, -1 for unknown, or only class_names to predict the graph"
        )
    if labels is None:
        labels = np.full(size, UNKNOWN)
    given = np.asarray(labels.cpu() if isinstance(labels, Tensor) else labels)
    return array_classes(given, size, class_names, below=max(size, 2**16))


def _matrix(features: Any, size: int, normalize: bool) -> Features:
    if isinstance(features, FeatureMatrix):
        features = features.to_scipy()
    elif isinstance(features, Tensor):
        features = features.detach().cpu().numpy()
    try:
        matrix = sp.csr_array(features) if is_sparse(features) else np.array(features, dtype=np.float32)
    except (ValueError, TypeError):
        raise GraphError("features are not a matrix (N, D): give one row of numbers per node") from None
    matrix = finite(matrix, "features", "the matrix", size)
    return Features(row_normalised(matrix) if normalize else matrix)


def _nodes(given: Any, size: int) -> NDArray[np.int64]:
    """Return a split as node numbers, given as node numbers or as a mask (N)."""
    nodes = np.asarray(given.cpu() if isinstance(given, Tensor) else given)
    if nodes.dtype == np.bool_:
        if nodes.shape != (size,):
            raise GraphError(
                f"a mask has shape {nodes.shape}, but there are {size} nodes: give one value per node"
            )
        return np.flatnonzero(nodes).astype(np.int64)
    if nodes.ndim != 1 or (nodes.size and nodes.dtype.kind not in "iu"):
        raise GraphError("a split must be a flat list of node numbers or a mask: give one of these")
    return nodes.astype(np.int64)


def _masked(mask: Tensor | None, column: int, part: str) -> Any:
    if mask is None or mask.dim() != 2:
        return () if mask is None else mask
    if not 0 <= column < mask.shape[1]:
        raise GraphError(f"{part}_mask has {mask.shape[1]} columns: use mask=0 to {mask.shape[1] - 1}")
    return mask[:, column]


def _network_split(network: Any, nodes: Sequence[Any]) -> dict[str, list[int]]:
    words = [network.nodes[node].get("split") for node in nodes]
    if not any(words):
        return {}
    wrong = [word for word in words if word and word not in PARTS]
    if wrong:
        raise GraphError(f"a node has split {wrong[0]!r}: use train, val or test, or leave it out")
    return {part: [k for k, word in enumerate(words) if word == part] for part in PARTS}


def _network_features(network: Any, nodes: Sequence[Any], features: str | Sequence[str] | None) -> Any:
    """Return (N, D) from one attribute of lists or several of numbers; None without features."""
    if features is None and not any("x" in network.nodes[node] for node in nodes):
        return None
    keys = [features or "x"] if isinstance(features, str | None) else list(features)
    for node, key in product(nodes, keys):
        if key not in network.nodes[node]:
            raise GraphError(f"node {node!r} has no attribute {key!r}: set it for all nodes")
    try:
        return np.array([np.hstack([network.nodes[node][key] for key in keys]) for node in nodes], np.float32)
    except (ValueError, TypeError):
        raise GraphError(
            f"attributes {keys} are not numbers, or their lengths differ: give every node the same number"
        ) from None
