"""Small graphs made by hand, shared by all tests."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from bvat.data import save_graph, synthetic_graph
from bvat.graph import Graph

torch.set_num_threads(1)
# What is started in the background (``pytest &``, nohup) ignores these signals, and hands that down to all
# processes that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGTERM, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let ``pytest tests/faults --tally FILE`` write what it counted."""
    parser.addoption("--tally", help="file for the counts of tests/faults", default=None)


def random_graph(
    nodes: int = 40,
    features: int = 24,
    classes: int = 3,
    edges: int = 48,
    seed: int = 0,
    *,
    dense: bool = False,
    signed: bool = False,
) -> Graph:
    """Return a graph with a connected part, a part of its own (the last six nodes) and an isolated node."""
    rng = np.random.default_rng(seed)
    big = nodes - 7  # 0 .. big - 1: first part; big: isolated; big + 1 ..: second part
    source, target = rng.integers(0, big, (2, edges))
    ring = np.arange(big + 1, nodes)
    source = np.concatenate([source, ring])
    target = np.concatenate([target, np.roll(ring, 1)])
    keep = source != target
    adjacency = sp.coo_array((np.ones(keep.sum()), (source[keep], target[keep])), shape=(nodes, nodes))
    x = rng.random((nodes, features)) * (rng.random((nodes, features)) < 0.3)
    x[:, 0] += 0.1  # no row is empty
    if signed:
        x *= rng.choice([-1.0, 1.0], x.shape)
    order = rng.permutation(nodes)
    return Graph.build(
        x if dense else sp.csr_array(x),
        adjacency,
        np.arange(nodes) % classes,
        train=order[:6],
        val=order[6:12],
        test=order[12:],
    )


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def make_graph() -> Callable[..., Graph]:
    """:func:`random_graph`, for tests that want other sizes."""
    return random_graph


@pytest.fixture(scope="session")
def graph() -> Graph:
    """40 nodes, 24 sparse features, 3 classes, single precision."""
    return random_graph()


@pytest.fixture(scope="session")
def graph64(graph: Graph) -> Graph:
    """The same graph in double precision."""
    return graph.to(dtype=torch.float64)


@pytest.fixture(scope="session")
def large_graph() -> Graph:
    """300 sparse nodes, so that the receptive fields of a few nodes are a small part of the graph."""
    return random_graph(nodes=300, features=30, edges=280, seed=5)


@pytest.fixture(scope="session")
def small() -> Graph:
    """120 nodes with few classes: what a whole run on it takes is next to nothing."""
    return synthetic_graph(nodes=120, edges=300, features=40, classes=3, train_per_class=5, val=30, test=40)


@pytest.fixture(scope="session")
def small_file(small: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same graph in a file, so that no test needs the network."""
    path = tmp_path_factory.mktemp("graphs") / "small.npz"
    save_graph(small, path)
    return path
