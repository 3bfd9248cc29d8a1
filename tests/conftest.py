"""Small graphs made by hand, shared by all tests.

They compute with tensor operations: compiled loops, which take seconds to compile, have tests of their own.
torch is imported where it is used, so that ``pytest -n 2`` starts its workers without waiting for it.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from bvat.graph import Graph

# numpy and scipy take a thread per core unless this is set when they are imported. On matrices of a few
# hundred rows these threads wait for each other, and for the other worker of ``pytest -n 2``, far longer than
# they compute.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Imports and collected tests stay to the end: looking for what is unreachable among them takes seconds.
gc.disable()

# What is started in the background (``pytest &``, nohup) ignores these signals, and hands that down to all
# processes that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGTERM, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let ``pytest tests/faults --tally FILE`` write what it counted."""
    parser.addoption("--tally", help="file for the counts of tests/faults", default=None)


def pytest_collection_finish() -> None:
    """Leave what was imported and collected to no later search for unreachable objects."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    import torch

    torch.manual_seed(0)


@pytest.fixture(scope="session")
def make_graph() -> Callable[..., Graph]:
    """:func:`random_graph`, for tests that want other sizes."""
    from graph_helpers import random_graph

    return random_graph


@pytest.fixture(scope="session")
def graph() -> Graph:
    """40 nodes, 24 sparse features, 3 classes, single precision."""
    from graph_helpers import random_graph

    return random_graph()


@pytest.fixture(scope="session")
def graph64(graph: Graph) -> Graph:
    """The same graph in double precision."""
    import torch

    return graph.to(dtype=torch.float64)


@pytest.fixture(scope="session")
def large_graph() -> Graph:
    """300 sparse nodes, so that the receptive fields of a few nodes are a small part of the graph."""
    from graph_helpers import random_graph

    return random_graph(nodes=300, features=30, edges=280, seed=5)


@pytest.fixture(scope="session")
def small() -> Graph:
    """120 nodes with few classes, on which a whole run takes almost no time."""
    from bvat.data import synthetic_graph

    drawn = synthetic_graph(nodes=120, edges=300, features=40, classes=3, train_per_class=5, val=30, test=40)
    return drawn.with_engine("tensor")


@pytest.fixture(scope="session")
def small_file(small: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same graph in a file, so that no test needs the network."""
    from bvat.data import save_graph

    path = tmp_path_factory.mktemp("graphs") / "small.npz"
    save_graph(small, path)
    return path
