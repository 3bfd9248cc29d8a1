"""Networks of the ensemble: trained on labels and, with few of them, on confident predictions."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bvat.baselines.base import Once
from bvat.graph import UNKNOWN, Graph
from bvat.models.ensemble import LINEAR, VIEWS
from bvat.perturb.methods import METHODS
from bvat.training.loop import train
from bvat.training.memory import give_back
from bvat.training.settings import Settings, labels_only, preset
from bvat.training.state import build_model, restore_model
from bvat.training.trained import predict
from bvat.tuning.cross_validation import fixed_epochs
from bvat.tuning.members import Member, Rows, Scores, Work, confident
from bvat.tuning.mixture import Mixture
from bvat.tuning.variants import Variant

NETWORKS: dict[int, tuple[str, ...]] = {
    1: (),
    2: ("gcn",),
    3: ("gcn", "vat", "random-propagation/grand"),
    4: ("gcn", "vat", "random-propagation/grand", "obvat", "sbvat", "appnp/vat"),
}
"""What is trained beside the linear members, by effort."""
UNTAUGHT = "appnp"
JUDGED = ("gcn", "vat", "appnp/vat", UNTAUGHT)
"""What is trained from effort 2 on where validation nodes judge: without folds, each is trained once. One of
them learns from labels alone, for graphs whose confident predictions mislead (Pubmed)."""
EPOCHS = 150
TRUSTED = 0.5
"""Networks read the given edges where these agree with the features by more than this."""
NETWORK_FOLDS = 2
"""Folds in which networks are trained too: their weight comes from the nodes of these."""


def train_networks(
    work: Work, mixture: Mixture, members: Mapping[str, Member], effort: int, seed: int, once: Once
) -> dict[str, Member]:
    """Train the networks of an effort on the graph that the linear members favour."""
    on, found = _favourite(work, mixture), {}
    taught = mixture.self_training(work) > 0.5  # whether networks learn from predictions too
    asked = [row.name for row in METHODS.added.values() if 0 < row.auto <= effort]
    names = dict.fromkeys((*NETWORKS[effort], *(JUDGED if work.validated else ()), *asked))
    for variant in map(Variant.parse, names):
        name, started = f"{variant.model}+{variant.method}-{on}", time.perf_counter()

        def trained(nodes: Any, p: Scores, part: str, variant: Variant = variant, name: str = name) -> Any:
            kept = partial(once, f"{name}-{part}")
            learns = taught and variant != Variant.parse(UNTAUGHT)
            return _trained(work, variant, on, nodes, p if learns else None, seed, kept)

        state, logits = trained(work.train, mixture.teaching(work, members), "all")
        folds = [logits] if work.validated else []
        for number, fold in enumerate([] if work.validated else work.folds[:NETWORK_FOLDS]):
            if work.enough:
                p = mixture.teaching(work, members, number)
            else:
                p = mixture.mean({n: m.folds[number] for n, m in members.items()})
            folds.append(trained(fold.train, p, f"fold{number}")[1])
        tensors = {f"network.{name}.{key}": value for key, value in state.items()}
        found[name] = Member(name, tensors, logits, folds, time.perf_counter() - started)
    return found


def _favourite(work: Work, mixture: Mixture) -> str:
    """Return the given graph, or where its edges say little of the features, what linear members favour.

    That is the graph whose members have the largest weight together; of equals the first.
    """
    if "given" in work.graphs and work.edges_agree > TRUSTED:
        return "given"
    totals = dict.fromkeys((name for name in ("given", "features", "both") if name in work.graphs), 0.0)
    for name, weight in mixture.weights.items():
        graphs = [VIEWS[view][0] for view in LINEAR[name]]
        if graphs == ["given", "features"]:
            graphs = ["both"]
        for graph in graphs:
            if graph in totals:
                totals[graph] += weight
    return max(totals, key=totals.__getitem__)


def _trained(
    work: Work,
    variant: Variant,
    on: str,
    train_nodes: NDArray[np.int64],
    p: Scores | None,
    seed: int,
    kept: Callable[[Callable[[], Tensor]], Tensor],
) -> tuple[dict[str, Tensor], Rows]:
    """Return the weights of a network, trained on labels and predictions, and its logits (N, C)."""
    labels = np.full(work.graph.num_nodes, UNKNOWN)
    labels[train_nodes] = work.labels[train_nodes]
    if p is not None:
        nodes, classes = confident(work, p, train_nodes)
        labels[nodes] = classes
    known = torch.from_numpy(np.flatnonzero(labels != UNKNOWN))
    none, val = known[:0], work.graph.val
    settings = preset("", variant.method, model=variant.model)
    if work.validated:  # these choose the epoch
        labels[val] = work.labels[val]
    else:
        val = none
        half = EPOCHS // 2 if settings.pretrain and variant.method != "none" else 0
        settings = fixed_epochs(settings, epochs=EPOCHS + half, pretrain=half, **labels_only(settings))
    graph = dataclasses.replace(
        work.graphs[on], labels=torch.from_numpy(labels), train=known, val=val, test=none, name="graph"
    )
    shapes = _shapes(settings, graph)

    give_back()

    def compute() -> Tensor:
        weights = train(graph, settings, seed=seed).weights
        return torch.cat([weights[name].flatten() for name in shapes])

    flat = kept(compute)
    sizes = [tensor.numel() for tensor in shapes.values()]
    pieces = torch.split(flat if flat.numel() == sum(sizes) else compute(), sizes)
    weights = {name: piece.view(shapes[name].shape) for name, piece in zip(shapes, pieces, strict=True)}
    model = restore_model(settings, graph.num_features, graph.num_classes, weights)
    return weights, predict(model, graph).float().numpy()


def _shapes(settings: Settings, graph: Graph) -> dict[str, Tensor]:
    with torch.device("meta"):
        return dict(build_model(settings, graph.num_features, graph.num_classes).state_dict())
