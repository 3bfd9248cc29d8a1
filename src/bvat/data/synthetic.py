"""Synthetic graphs whose edges and words depend on the classes, for tests, examples and benchmarks."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from bvat.engine.sparse import SparseMatrix, SymmetricMatrix
from bvat.errors import SettingsError
from bvat.graph import Graph

IntArray = NDArray[np.int64]
_LARGEST = 2**31 - 1


def synthetic_graph(
    nodes: int = 1000,
    edges: int = 4000,
    features: int = 200,
    classes: int = 4,
    homophily: float = 0.8,
    words_per_node: int = 15,
    train_per_class: int = 20,
    val: int | None = None,
    test: int | None = None,
    seed: int = 0,
    topic_share: float = 0.3,
) -> Graph:
    """Draw a graph with classes and sparse binary features, row-normalised as in the paper.

    Classes have equal size (up to one node). ``homophily * edges`` edges are drawn uniformly among the pairs
    of nodes in the same class, the others among the pairs in different classes. The vocabulary is divided
    into one topic per class; each word of a node comes from the topic of its class with probability
    ``topic_share``, and otherwise from the whole vocabulary. A word drawn twice counts once.

    Args:
        nodes: N.
        edges: number of distinct undirected edges, without self-loops.
        features: D, the size of the vocabulary; at least one word per class.
        classes: C, at least 2.
        homophily: fraction of edges within a class, 0 to 1.
        words_per_node: words drawn per node.
        train_per_class: training nodes of each class.
        val: validation nodes; by default a third of the rest, at most 500.
        test: test nodes; by default the rest, at most 1000.
        seed: same seed, same graph.
        topic_share: how informative the words are about the class, 0 to 1.

    Raises:
        SettingsError: an argument is out of range, or there are not enough pairs of nodes or nodes.

    Shapes: result with features CSR (N, D), adjacency (N, N), labels (N).

    Example:
        >>> bvat.synthetic_graph(nodes=300, edges=900, features=100)
        Graph('synthetic', 300 nodes, 900 edges, 100 features, 4 classes, 80/73/147 train/val/test)
    """
    nodes, edges = _whole("nodes", nodes, 2, _LARGEST), _whole("edges", edges, 0, _LARGEST // 2)
    classes = _whole("classes", classes, 2, nodes)
    features = _whole("features", features, classes, _LARGEST)
    words_per_node = _whole("words_per_node", words_per_node, 1, min(features, _LARGEST // nodes))
    train_per_class = _whole("train_per_class", train_per_class, 1, nodes // classes)
    homophily, topic_share = _share("homophily", homophily), _share("topic_share", topic_share)
    rng = np.random.default_rng(_whole("seed", seed, 0, None))

    sizes = np.full(classes, nodes // classes, dtype=np.int64)
    sizes[: nodes % classes] += 1
    members = rng.permutation(nodes)  # first the nodes of class 0, then class 1, ...
    labels = np.empty(nodes, dtype=np.int64)
    labels[members] = np.repeat(np.arange(classes), sizes)
    split = _split(rng, members, sizes, train_per_class, val, test)
    source, target = _draw_edges(rng, sizes, edges, homophily)
    return Graph(
        features=_draw_words(rng, labels, features, classes, words_per_node, topic_share),
        adjacency=_adjacency(members[source], members[target], nodes),
        labels=torch.from_numpy(labels),
        **split,
        class_names=tuple(map(str, range(classes))),
        name="synthetic",
        validation="synthetic",
    )


def _draw_edges(
    rng: np.random.Generator, sizes: IntArray, edges: int, homophily: float
) -> tuple[IntArray, IntArray]:
    """Draw distinct pairs by their number in an enumeration of all pairs, which is never stored.

    Shapes: sizes (C); result two arrays (edges) of positions in the list of nodes sorted by class.
    """
    start = np.cumsum(sizes) - sizes
    inside = round(homophily * edges)
    # Pairs i < j within a class are numbered i + j (j - 1) / 2, one class after the other.
    first, rank = _draw_from_blocks(rng, sizes * (sizes - 1) // 2, inside, "within classes", homophily)
    i, j = _pair(rank)
    # Pairs between classes a < b are numbered i n_b + j.
    a, b = np.triu_indices(len(sizes), k=1)
    block, rank = _draw_from_blocks(rng, sizes[a] * sizes[b], edges - inside, "between classes", homophily)
    a, b = a[block], b[block]
    return (
        np.concatenate([start[first] + i, start[a] + rank // sizes[b]]),
        np.concatenate([start[first] + j, start[b] + rank % sizes[b]]),
    )


def _pair(rank: IntArray) -> tuple[IntArray, IntArray]:
    """Return the i < j with ``rank = i + j (j - 1) / 2``."""
    j = ((1 + np.sqrt(1.0 + 8.0 * rank)) / 2).astype(np.int64)
    j -= j * (j - 1) // 2 > rank  # the square root may be rounded either way
    j += j * (j + 1) // 2 <= rank
    return rank - j * (j - 1) // 2, j


def _draw_from_blocks(
    rng: np.random.Generator, blocks: IntArray, count: int, where: str, homophily: float
) -> tuple[IntArray, IntArray]:
    """Draw ``count`` distinct numbers below sum(blocks); return the block of each and its offset in it."""
    end = np.cumsum(blocks)
    if count > end[-1]:
        raise SettingsError(
            f"homophily={homophily} asks for {count} edges {where}, but there are only {end[-1]} such pairs: "
            "use fewer edges or a different homophily"
        )
    drawn = rng.choice(int(end[-1]), count, replace=False, shuffle=False) if count else np.arange(0)
    block = np.searchsorted(end, drawn, side="right")
    return block, drawn - (end[block] - blocks[block])


def _adjacency(source: IntArray, target: IntArray, nodes: int) -> SymmetricMatrix:
    """Return the adjacency of distinct undirected edges; source, target (E), result (N, N)."""
    ends = np.concatenate([source, target]), np.concatenate([target, source])
    ones = np.ones(2 * source.size, np.float32)
    return SymmetricMatrix.of(SparseMatrix.from_scipy(sp.csr_array((ones, ends), shape=(nodes, nodes))))


def _draw_words(
    rng: np.random.Generator, labels: IntArray, features: int, classes: int, words: int, share: float
) -> SparseMatrix:
    """Return binary rows scaled to sum 1, about ``share`` of the words on topic; result (N, D)."""
    nodes = len(labels)
    topic_start = np.arange(classes + 1) * features // classes
    low, high = topic_start[labels][:, None], topic_start[labels + 1][:, None]
    on_topic = rng.random((nodes, words), dtype=np.float32) < share
    word = rng.integers(np.where(on_topic, low, 0), np.where(on_topic, high, features))
    word.sort(axis=1)
    new = np.ones_like(on_topic)
    new[:, 1:] = word[:, 1:] != word[:, :-1]
    counts = new.sum(axis=1)
    crow = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return SparseMatrix(
        torch.from_numpy(crow),
        torch.from_numpy(word[new].astype(np.int32)),
        torch.from_numpy(np.repeat((1.0 / counts).astype(np.float32), counts)),
        (nodes, features),
    )


def _split(
    rng: np.random.Generator, members: IntArray, sizes: IntArray, per_class: int, val: Any, test: Any
) -> dict[str, Any]:
    start = np.cumsum(sizes) - sizes  # members are shuffled, so the first of a class are a random choice
    train = members[(start[:, None] + np.arange(per_class)).ravel()]
    rest = rng.permutation(np.setdiff1d(members, train, assume_unique=True))
    val = _whole("val", min(500, len(rest) // 3) if val is None else val, 0, len(rest))
    left = len(rest) - val
    test = _whole("test", min(1000, left) if test is None else test, 0, left)
    parts = {"train": train, "val": rest[:val], "test": rest[val : val + test]}
    return {part: torch.from_numpy(np.sort(nodes)) for part, nodes in parts.items()}


def _whole(name: str, value: Any, low: int, high: int | None) -> int:
    """Return an argument as int; raise SettingsError unless it is an integer from low to high."""
    top = "up" if high is None else f"to {high}"
    try:
        number = operator.index(value)
    except TypeError:
        raise SettingsError(f"{name} is {value!r}: use a whole number from {low} {top}") from None
    if number < low or (high is not None and number > high):
        raise SettingsError(f"{name} is {number}: use a whole number from {low} {top}")
    return number


def _share(name: str, value: Any) -> float:
    if not isinstance(value, int | float | np.floating) or not 0 <= value <= 1:
        raise SettingsError(f"{name} is {value!r}: use a number from 0 to 1")
    return float(value)
