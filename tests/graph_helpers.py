"""A small graph made at random."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bvat.graph import Graph


def random_graph(
    nodes: int = 40,
    features: int = 24,
    classes: int = 3,
    edges: int = 48,
    seed: int = 0,
    *,
    dense: bool = False,
    signed: bool = False,
    weighted: bool = False,
) -> Graph:
    """Return a graph with a connected part, a part of its own (the last six nodes) and an isolated node."""
    rng = np.random.default_rng(seed)
    big = nodes - 7  # 0 .. big - 1: first part; big: isolated; big + 1 ..: second part
    source, target = rng.integers(0, big, (2, edges))
    ring = np.arange(big + 1, nodes)
    source = np.concatenate([source, ring])
    target = np.concatenate([target, np.roll(ring, 1)])
    keep = source != target
    weights = np.random.default_rng(seed).uniform(0.5, 2, source.size) if weighted else np.ones(source.size)
    adjacency = sp.coo_array((weights[keep], (source[keep], target[keep])), shape=(nodes, nodes))
    x = rng.random((nodes, features)) * (rng.random((nodes, features)) < 0.3)
    x[:, 0] += 0.1  # no row is empty
    if signed:
        x *= rng.choice([-1.0, 1.0], x.shape)
    order = rng.permutation(nodes)
    built = Graph.build(
        x if dense else sp.csr_array(x),
        adjacency,
        np.arange(nodes) % classes,
        train=order[:6],
        val=order[6:12],
        test=order[12:],
    )
    return built.with_engine("tensor")


def one_way(graph: Graph, seed: int = 0) -> Graph:
    """Return a directed graph with one of the two directions of most edges, and weights."""
    rng = np.random.default_rng(seed)
    edges = sp.coo_array(graph.adjacency.to_scipy())
    first = rng.random(edges.nnz) < 0.5
    both = edges.row + edges.col < graph.num_nodes // 4
    kept = both | np.where(edges.row < edges.col, first, ~first)
    values = rng.random(edges.nnz) + 0.5
    matrix = sp.coo_array((values[kept], (edges.row[kept], edges.col[kept])), shape=edges.shape)
    built = rebuilt(graph, matrix, directed=True)
    return built.to(dtype=graph.features.dtype).with_engine(graph.engine)


def rebuilt(graph: Graph, edges: Any = None, **changes: Any) -> Graph:
    """Return what ``Graph.build`` makes of a graph, with other edges or arguments."""
    same = ("train", "val", "test", "class_names", "directed")
    given = {name: getattr(graph, name) for name in same} | changes
    edges = graph.adjacency.to_scipy() if edges is None else edges
    return Graph.build(graph.features, edges, graph.labels, normalize=False, **given)
