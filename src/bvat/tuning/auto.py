"""``--method auto``: an ensemble for few labels, weighted by out-of-fold predictions.

1. Linear classifiers of latent features that spread over the given edges, over similar nodes, and over both.
2. Each is trained once per fold without the fold's labels; its temperature and its weight come from the
   log-loss of these predictions, with a prior, and so does the smoothing of the mean.
3. Self-training: the more confident half of each predicted class joins the labels with a small weight, and
   the members are fitted again. With at least 10 labels per class, out-of-fold predictions say what a
   probability is worth: then all nodes above a threshold join, in two rounds. Validation nodes say whether
   either way helps.
4. Networks (effort 2 and more) are trained on labels and these predictions, with our regularisers from
   effort 3 on, and get a weight in the same way; validation nodes choose their epochs.

All of it is deterministic: effort is counted in work, not in seconds.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bvat.baselines.base import Fit, Once, always
from bvat.baselines.table import AutoOptions
from bvat.graph import Graph
from bvat.graph.neighbours import METRICS
from bvat.models.ensemble import LINEAR, VIEWS, Ensemble
from bvat.training.memory import give_back
from bvat.training.metrics import LEAST
from bvat.tuning.cross_validation import held_out_logits, out_of_fold_scores
from bvat.tuning.members import (
    ROUNDS,
    Lessons,
    Member,
    Work,
    confident,
    linear_member,
)
from bvat.tuning.mixture import Mixture
from bvat.tuning.networks import train_networks
from bvat.tuning.variants import Variant

NEGLIGIBLE = 1e-3
"""Members with a smaller weight are not fitted again."""

Tell = Callable[[str], None]


def fit(
    graph: Graph, seed: int, options: AutoOptions | None = None, once: Once = always, tell: Tell | None = None
) -> Fit:
    """Fit the ensemble to the labels of a graph, on the CPU.

    Args:
        graph: with training nodes. With at least :data:`FEW` validation nodes these decide on weights, else
            they count as training nodes and cross-validation decides.
        seed: of the networks.
        options: effort, neighbours, single.
        once: keeps what takes long, so that an interrupted fit continues.
        tell: called with a sentence when a better answer exists.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1, "blas"):  # many small products: threads of BLAS would wait for each other
        return _fit(graph, seed, options or AutoOptions(), once, tell)


def _fit(graph: Graph, seed: int, options: AutoOptions, once: Once, tell: Tell | None) -> Fit:
    started = time.perf_counter()
    work = Work.on(graph, options)
    members, mixture = fitted_members(work, seed, once, tell)
    model = _assembled(work, members, mixture)
    return Fit(model, report=_report(work, members, mixture, time.perf_counter() - started))


def fitted_members(
    work: Work, seed: int, once: Once = always, tell: Tell | None = None
) -> tuple[dict[str, Member], Mixture]:
    """Return all members, fitted, and how they are put together."""
    started = time.perf_counter()
    members = {name: linear_member(work, name) for name in work.linear_names()}
    mixture = Mixture.of(work, members)
    if tell is not None:
        tell(f"a first answer after {time.perf_counter() - started:.1f} s: {mixture.described(work)}")
    mixture = _in_rounds(work, members, mixture)
    lessons = None if work.enough else _lessons(work, mixture, members)  # with enough, they are learned
    if work.options.effort > 1:
        work.release()
        members |= train_networks(work, mixture, members, work.options.effort, seed, once)
        mixture = Mixture.of(work, members)
    if work.options.single:
        best = max(members, key=lambda name: mixture.weights[name])
        members = {best: members[best]}
        mixture = Mixture.of(work, members)
    if lessons is not None:
        if work.validated:
            mixture, _ = _confirmed(work, members, mixture, lessons)
        else:
            _learn(work, members, mixture, lessons)
    if work.folds and not work.validated and not work.enough:
        mixture = mixture.smoothed(work, members)
    return members, mixture


def _in_rounds(work: Work, members: dict[str, Member], mixture: Mixture) -> Mixture:
    """Teach linear members in the rounds that need enough labels; return how they are put together then.

    Validation nodes say whether calibrated probabilities can be believed: if the first round does not lower
    their log-loss, labels are too few for it (with 5 per class, Pubmed's may all be of one class).
    """
    for number in range(ROUNDS if work.enough else 0):
        lessons = _lessons(work, mixture, members)
        if lessons is None:
            break
        if work.validated:
            mixture, better = _confirmed(work, members, mixture, lessons)
            work.enough = better or number > 0
            if not better:
                break
        else:
            _learn(work, members, mixture, lessons)
            mixture = Mixture.of(work, members)
    return mixture


def _confirmed(
    work: Work, members: dict[str, Member], mixture: Mixture, lessons: Lessons
) -> tuple[Mixture, bool]:
    """Keep what members learn if it lowers the log-loss on the validation nodes; return whether it does."""
    taught = dict(members)
    _learn(work, taught, mixture, lessons)
    found = Mixture.of(work, taught)
    if found.loss(work) >= mixture.loss(work):
        return mixture, False
    members.update(taught)
    return found, True


def _lessons(work: Work, mixture: Mixture, linear: Mapping[str, Member]) -> Lessons | None:
    """Return what linear members teach; in a fold, without the labels of that fold. None: nothing."""
    share = mixture.self_training(work)
    if not share:
        return None
    whole = confident(work, mixture.teaching(work, linear), work.train)
    folds = enumerate([] if work.validated else work.folds)
    each = [confident(work, mixture.teaching(work, linear, k), fold.train) for k, fold in folds]
    give_back()
    return Lessons(share, whole, each)


def _learn(work: Work, members: dict[str, Member], mixture: Mixture, lessons: Lessons) -> None:
    """Fit linear members again, one after the other: old logits of all would take as much memory again."""
    for name, old in members.items():
        if name in LINEAR and mixture.weights[name] > NEGLIGIBLE:
            new = linear_member(work, name, lessons)
            members[name] = dataclasses.replace(new, seconds=old.seconds + new.seconds)


def _assembled(work: Work, members: Mapping[str, Member], mixture: Mixture) -> nn.Module:
    tensors: dict[str, Tensor] = {
        "latent.weight": work.latent.weight,
        "latent.shift": work.latent.shift,
        "about.neighbours": torch.tensor([work.options.k, METRICS.index(work.options.metric)]),
        "about.temperature": torch.tensor(mixture.temperature),
    }
    for name, member in members.items():
        tensors |= member.tensors
        tensors[f"weight.{name}"] = torch.tensor(mixture.weights[name])
        tensors[f"temperature.{name}"] = torch.tensor(mixture.temperatures[name])
        tensors |= {f"mean.{view}": work.means[view] for view in LINEAR.get(name, ())}
    tensors |= {f"smooth.{name}": torch.tensor(share) for name, share in mixture.smooth.items()}
    return Ensemble(**tensors)


def _report(work: Work, members: Mapping[str, Member], mixture: Mixture, seconds: float) -> dict[str, Any]:
    """Return what a run shows of its ensemble, as plain values."""
    rows = [
        {
            "name": name,
            "title": member_title(name),
            "weight": mixture.weights[name],
            "accuracy": mixture.accuracies.get(name),
            "log_loss": mixture.losses.get(name),
            "nodes": member.held_out(work).shape[0] if member.folds else 0,
            "seconds": member.seconds,
        }
        for name, member in members.items()
    ]
    found = None
    if mixture.held_out is not None and not work.validated:
        predicted = torch.from_numpy(mixture.held_out.argmax(1))
        labels = torch.from_numpy(work.labels[work.held_out[: len(predicted)]])
        sizes = torch.from_numpy(mixture.probabilities(work, members).argmax(1)).bincount(
            minlength=work.graph.num_classes
        )
        folds = max(len(member.folds) for member in members.values())
        found = out_of_fold_scores(predicted, labels, sizes, folds, work.graph.class_names)
    kept = None
    if mixture.held_out is not None:
        nodes = torch.from_numpy(work.held_out[: len(mixture.held_out)])
        logits = mixture.temperature * torch.from_numpy(mixture.held_out).clamp_min(LEAST).log()
        kept = held_out_logits(nodes, work.graph.labels[nodes], logits)
    return {
        "members": sorted(rows, key=lambda row: -float(str(row["weight"]))),
        "estimate": found,
        "out_of_fold": kept,
        "smoothing": mixture.smooth,
        "edges_agree": work.edges_agree,
        "labels": int(work.train.size),
        "seconds": seconds,
    }


def member_title(name: str) -> str:
    """Return what a member is, in words."""
    if name in LINEAR:
        return "linear, " + " and ".join(VIEWS[view][1] for view in LINEAR[name])
    kind, _, graph = name.rpartition("-")
    model, _, method = kind.partition("+")
    where = {"given": "the given edges", "features": "similar nodes", "both": "given edges and similar nodes"}
    return f"{Variant(model, method).title}, on {where[graph]}"
