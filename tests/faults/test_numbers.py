"""Extreme numbers and shapes: trained to finite numbers or refused in a sentence, on every path alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from tally import Tally

from bvat.data import synthetic_graph
from bvat.errors import BvatError, SettingsError
from bvat.graph import Graph
from bvat.models.table import MODELS
from bvat.perturb.methods import METHODS
from bvat.store.folder import RunFolder
from bvat.store.pool import thread_count
from bvat.store.store import SeedTrainer, train_seeds
from bvat.training.loop import TrainedModel, train
from bvat.training.settings import Settings, preset
from bvat.tuning.variants import Variant
from kernel_helpers import without_numba

N = 24


def ring(nodes: int) -> Any:
    """Return the adjacency of a ring."""
    return sp.coo_array(
        (np.ones(nodes), (np.arange(nodes), np.roll(np.arange(nodes), 1))), shape=(nodes, nodes)
    )


def graph_of(features: Any, adjacency: Any = None, labels: Any = None, **rest: Any) -> Graph:
    """Return a graph whose first half is for training and whose second half is for validation and test."""
    nodes = features.shape[0]
    labels = np.arange(nodes) % 2 if labels is None else labels
    half = max(1, nodes // 2)
    options = {"train": np.arange(min(half, 40)), "val": np.arange(half, nodes)[:20], **rest}
    return Graph.build(features, ring(nodes) if adjacency is None else adjacency, labels, **options)


def noise(nodes: int = N, columns: int = 10) -> Any:
    """Return random features."""
    return np.random.default_rng(0).random((nodes, columns))


def star(leaves: int) -> Any:
    """Return the adjacency of a star."""
    ends = (np.zeros(leaves, np.int64), np.arange(1, leaves + 1))
    return sp.coo_array((np.ones(leaves), ends), shape=(leaves + 1, leaves + 1))


GRAPHS: dict[str, Callable[[], Graph]] = {
    "all features 0": lambda: graph_of(np.zeros((N, 10))),
    "sparse features without an entry": lambda: graph_of(sp.csr_array((N, 10))),
    "constant features": lambda: graph_of(np.ones((N, 10))),
    "features of 1e30": lambda: graph_of(noise() * 1e30),
    "features of 1e30 as they are": lambda: graph_of(noise() * 1e30, normalize=False),
    "features of 1e-30": lambda: graph_of(noise() * 1e-30),
    "features of 1e-30 as they are": lambda: graph_of(noise() * 1e-30, normalize=False),
    "features of 1e-40 as they are": lambda: graph_of(noise() * 1e-40, normalize=False),
    "features of 1e38": lambda: graph_of(noise() * 1e38),
    "one huge feature": lambda: graph_of(np.where(np.arange(240).reshape(N, 10) == 7, 1e30, noise())),
    "one feature": lambda: graph_of(noise(columns=1)),
    "one class": lambda: graph_of(noise(), labels=np.zeros(N, np.int64)),
    "two nodes": lambda: graph_of(noise(2), labels=np.array([0, 1]), train=[0, 1], val=[]),
    "one node": lambda: graph_of(noise(1), sp.coo_array((1, 1)), labels=np.array([0]), train=[0], val=[]),
    "a star with 100,000 leaves": lambda: graph_of(noise(100_001, 3), star(100_000)),
    "a complete graph": lambda: graph_of(noise(), np.ones((N, N))),
    "isolated nodes only": lambda: graph_of(noise(), sp.coo_array((N, N))),
    "edge weights of 1e30": lambda: graph_of(noise(), ring(N) * 1e30),
    "edge weights of 1e-30": lambda: graph_of(noise(), ring(N) * 1e-30),
    "more classes than nodes": lambda: graph_of(noise(), labels=np.arange(N) * 9),
    "double precision": lambda: graph_of(noise()).to(dtype=torch.float64),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "hidden wider than the features": {"hidden": 64},
    "hidden 1": {"hidden": 1},
    "dropout .999": {"dropout": 0.999},
    "dropout 0": {"dropout": 0.0},
    "epsilon 0": {"epsilon": 0.0},
    "epsilon 1e30": {"epsilon": 1e30},
    "epsilon 1e-30": {"epsilon": 1e-30},
    "xi 1e-30": {"xi": 1e-30},
    "xi 1e30": {"xi": 1e30},
    "alpha and beta 1e30": {"alpha": 1e30, "beta": 1e30},
    "step size 1e30": {"step_size": 1e30},
    "gamma 1e30": {"gamma": 1e30},
    "start 1e30": {"start": 1e30},
    "learning rate 1e30": {"lr": 1e30},
    "weight decay 1e30": {"weight_decay": 1e30},
    "no steps": {"steps": 0},
    "ten layers": {"layers": 10},
    "one layer": {"layers": 1},
}


def outcome(graph: Graph, settings: Settings, context: Any = None) -> TrainedModel | str:
    """Train, and return the model or the sentence with which training was refused."""
    try:
        with context or nullcontext():
            found = train(graph, settings, 0)
    except BvatError as error:
        return str(error)
    return found


def is_finite(found: TrainedModel) -> bool:
    """Return whether the weights and the loss of every epoch are finite."""
    losses = [row["loss"] for row in found.metrics]
    weights = all(bool(torch.isfinite(tensor).all()) for tensor in found.weights.values())
    return weights and all(math.isfinite(loss) for loss in losses)


def same(
    one: TrainedModel | str, other: TrainedModel | str, tolerance: float, epochs: int | None = None
) -> bool:
    """Return whether both paths trained to nearly the same loss, or both refused."""
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str)
    pairs = zip(one.metrics[:epochs], other.metrics[:epochs], strict=True)
    return all(math.isclose(a["loss"], b["loss"], rel_tol=tolerance, abs_tol=1e-5) for a, b in pairs)


class Paths:
    """Counts how the compiled and the plain path end, and whether they agree."""

    def __init__(self, tally: list[Tally], what: str) -> None:
        self.trained = Tally("Numbers", what, "finite numbers, or one sentence")
        self.agree = Tally("Numbers", f"{what}, compiled and plain", "the same numbers up to rounding")
        self.bad: list[str] = []
        tally += [self.trained, self.agree]

    def __call__(
        self, what: str, graph: Graph, settings: Settings, tolerance: float, epochs: int | None = None
    ) -> None:
        """Train on both paths, and compare some of the first epochs, by default all."""
        compiled, plain = outcome(graph, settings), outcome(graph, settings, without_numba())
        fine = isinstance(compiled, str) or is_finite(compiled)
        alike = same(compiled, plain, tolerance, epochs)
        self.trained.count(fine)
        self.agree.count(alike)
        if not (fine and alike):
            self.bad.append(f"{what}, {settings.model}, {settings.method}: {compiled!r:.300}, {plain!r:.300}")


def test_graphs(tally: list[Tally]) -> None:
    paths = Paths(tally, "extreme graphs")
    for what, build in GRAPHS.items():
        try:
            graph = build()
        except BvatError:
            paths.trained.count(True)
            continue
        big = graph.num_nodes > 1000
        cases = [("gcn", method) for method in METHODS]
        cases += [] if big else [(model, "vat") for model in MODELS if model != "gcn"]
        for model, method in cases:
            for scale in ("none",) if big or model != "gcn" else ("none", "unit"):
                rest = {"count": 5, "scale": scale, "epochs": 2 if big else 4}
                plain = {"pretrain": 0, "guard": False, "patience": 0, "confidence": 0.0, "select": "last"}
                settings = Variant(model, method).settings(hidden=4, heads=2, **plain, **rest)
                # gradients of its kernels are rounding noise there, of which Adam makes whole steps
                noisy = (what, model) == ("features of 1e30 as they are", "monet")
                paths(what, graph, settings, 1e-3, epochs=1 if noisy else None)
    assert not paths.bad, "\n".join(paths.bad)


def test_settings(tally: list[Tally]) -> None:
    paths = Paths(tally, "extreme settings")
    graph = synthetic_graph(nodes=60, edges=150, features=24, classes=3, train_per_class=4, val=12, test=20)
    cases = [("gcn", method) for method in METHODS] + [(model, "vat") for model in MODELS if model != "gcn"]
    for what, chosen in SETTINGS.items():
        for model, method in cases:
            for search in ("adam", "fast") if method == "obvat" else ("adam",):
                values = {"hidden": 8, "heads": 2, "count": 8, "epochs": 4, "search": search, **chosen}
                try:
                    settings = Variant(model, method).settings(pretrain=0, guard=False, **values)
                except SettingsError:  # flag takes at least one step
                    paths.trained.count(True)
                    continue
                paths(what, graph, settings, 1e-2)
    assert not paths.bad, "\n".join(paths.bad)


def test_threads(tally: list[Tally]) -> None:
    entry = Tally("Numbers", "2 and 3 threads instead of 1", "the same numbers up to rounding")
    tally.append(entry)
    graph = synthetic_graph(nodes=1500, edges=6_000, features=200, classes=5)
    for method in METHODS:
        found = []
        for threads in (1, 2, 3):
            with thread_count(threads):
                found.append(train(graph, preset("", method, epochs=3, hidden=32), 1))
        for other in found[1:]:  # a matrix product adds up its terms in an order that depends on the threads
            entry.count(same(found[0], other, 1e-4))


def test_processes(tally: list[Tally], tmp_path: Path) -> None:
    entry = Tally("Numbers", "2 processes instead of 1", "the same result, bit for bit")
    tally.append(entry)
    graph = synthetic_graph(nodes=300, edges=900, features=50, classes=3)
    settings, seeds = Settings(method="obvat", epochs=5), [0, 1, 2]
    runs = []
    for jobs in (1, 2):
        folder = RunFolder(tmp_path / str(jobs))
        folder.start(graph, settings, resume=False)
        results = train_seeds(SeedTrainer(folder, graph, settings), seeds, jobs)
        assert [result["seed"] for result in results] == seeds
        runs.append([(folder.weights(result["seed"]), result) for result in results])
    for (one, first), (two, second) in zip(*runs, strict=True):
        alike = all(torch.equal(tensor, two[name]) for name, tensor in one.items())
        entry.count(alike and all(first[key] == second[key] for key in ("last", "best")))
