"""``--method auto``: an ensemble for few labels, weighted by out-of-fold predictions.

1. Linear classifiers of latent features that spread over the given edges, over similar nodes, and over both.
2. Each is trained once per fold without the fold's labels; its temperature and its weight come from the
   log-loss of these predictions, with a prior, and so does the smoothing of the mean.
3. Self-training: the more confident half of each predicted class joins the labels with a small weight, and
   the members are fitted again. With at least 10 labels per class, out-of-fold predictions say what a
   probability is worth: then all nodes above a threshold join, in two rounds.
4. Networks (effort 2 and more) are trained on labels and these predictions, with our regularisers from
   effort 3 on, and get a weight in the same way.

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
    Member,
    Work,
    confident,
    linear_logits,
    linear_member,
    linear_tensors,
    regression,
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
    members, mixture = _in_rounds(work, members, mixture)
    first, linear = mixture, dict(members)
    if work.options.effort > 1:
        work.release()
        members |= train_networks(work, mixture, members, work.options.effort, seed, once)
        mixture = Mixture.of(work, members)
    if work.options.single:
        best = max(members, key=lambda name: mixture.weights[name])
        members = {best: members[best]}
        mixture = Mixture.of(work, members)
    if not work.enough:  # else it comes before the networks
        taught = _self_trained(work, first, linear, members, mixture)
        if not work.validated:
            return taught, mixture.smoothed(work, taught) if work.folds else mixture
        members, mixture = _better(work, (members, mixture), taught)
    return members, mixture


def _in_rounds(work: Work, members: dict[str, Member], mixture: Mixture) -> tuple[dict[str, Member], Mixture]:
    """Return linear members and mixture after the rounds of self-training that need enough labels.

    Validation nodes say whether calibrated probabilities can be believed: if the first round does not lower
    their log-loss, labels are too few for it (with 5 per class, Pubmed's may all be of one class).
    """
    for number in range(ROUNDS if work.enough else 0):
        taught = _self_trained(work, mixture, members, members, mixture)
        if not work.validated:
            members, mixture = taught, Mixture.of(work, taught)
            continue
        kept = _better(work, (members, mixture), taught)
        work.enough = work.enough and (number > 0 or kept[0] is taught)
        members, mixture = kept
    return members, mixture


def _better(
    work: Work, before: tuple[dict[str, Member], Mixture], taught: dict[str, Member]
) -> tuple[dict[str, Member], Mixture]:
    """Return what has the lower log-loss on the validation nodes: before or after self-training."""
    mixture = Mixture.of(work, taught)
    return (taught, mixture) if mixture.loss(work) < before[1].loss(work) else before


def _self_trained(
    work: Work,
    first: Mixture,
    linear: Mapping[str, Member],
    members: Mapping[str, Member],
    mixture: Mixture,
) -> dict[str, Member]:
    """Return the members with the linear ones fitted again, to labels and confident predictions.

    Predictions are those of the linear members; of a fold, those without the labels of that fold.
    """
    share = first.self_training(work)
    if not share:
        return dict(members)
    pseudo = confident(work, first.teaching(work, linear), work.train)
    at_folds = []
    if not work.validated:
        for number, fold in enumerate(work.folds):
            at_folds.append((fold.train, confident(work, first.teaching(work, linear, number), fold.train)))
    found = dict(members)
    give_back()
    for name in (name for name in members if name in LINEAR and mixture.weights[name] > NEGLIGIBLE):
        started = time.perf_counter()
        weight, bias = regression(work, name, work.train, pseudo, share)
        logits = linear_logits(work, name, weight, bias)
        each = (regression(work, name, train, chosen, share) for train, chosen in at_folds)
        found[name] = dataclasses.replace(
            members[name],
            tensors=linear_tensors(name, weight, bias),
            logits=logits,
            folds=[logits] if work.validated else [linear_logits(work, name, *of_fold) for of_fold in each],
            seconds=members[name].seconds + time.perf_counter() - started,
        )
    return found


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
