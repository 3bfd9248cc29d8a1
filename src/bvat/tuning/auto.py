"""``--method auto``: an ensemble for few labels, weighted by out-of-fold predictions.

1. Linear classifiers of latent features that spread over the given edges, over similar nodes, and over both.
2. Each is trained once per fold without the fold's labels; its temperature and its weight come from the
   log-loss of these predictions, with a prior, and so does the smoothing of the mean.
3. Self-training: the more confident half of each predicted class joins the labels with a small weight, and
   the members are fitted again.
4. Networks (effort 2 and more) are trained on labels and these predictions, with our regularisers from
   effort 3 on, and get a weight in the same way.

All of it is deterministic: effort is counted in work, not in seconds.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bvat.baselines.base import Fit, Once, always
from bvat.baselines.table import AutoOptions
from bvat.data.splits import folds
from bvat.errors import GraphError
from bvat.graph import UNKNOWN, Graph, Latent
from bvat.graph.neighbours import METRICS, agreement, unit_rows
from bvat.models.ensemble import LEAST, LINEAR, VIEWS, Ensemble, make_graphs, smoothed, spread_view
from bvat.training.loop import train
from bvat.training.settings import preset
from bvat.training.state import restore_model
from bvat.training.trained import predict
from bvat.tuning.cross_validation import FEW, FOLDS, fixed_epochs, scores_of
from bvat.tuning.variants import Variant

PRIOR = {
    "x": 0.25,
    "given-far": 2.0,
    "given-near": 1.0,
    "features-far": 0.5,
    "both-far": 1.0,
    "given-and-features": 2.0,
}
"""Weights of the linear members before any label is seen, where edges say something of the features."""
NETWORK_PRIOR = 1.0
SHARPNESS = 0.5
"""How much of the log-likelihood counts for the weights: that of few labels is not sure."""
STRENGTH = 10.0
"""Inverse L2 penalty of the linear members."""
PSEUDO, PSEUDO_WEIGHT, PSEUDO_BELOW = 700, 0.1, 10.0
"""Nodes of the self-training, the weight of each, and the labels per class from which on it is left out."""
NEGLIGIBLE = 1e-3
"""Members with a smaller weight are not fitted again."""
NETWORKS: dict[int, tuple[str, ...]] = {
    1: (),
    2: ("gcn",),
    3: ("gcn", "vat", "random-propagation/grand"),
    4: ("gcn", "vat", "random-propagation/grand", "obvat", "sbvat", "appnp/vat"),
}
"""What is trained beside the linear members, by effort."""
SAME = 1e-5
"""Latent features that differ by less are equal."""
EPOCHS = 150
NETWORK_FOLDS = 2
"""Folds in which networks are trained too: their weight comes from the nodes of these."""

Scores = NDArray[np.float64]
Pseudo = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Nodes and the classes that they are predicted to have."""
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
    started, options = time.perf_counter(), options or AutoOptions()
    work = _Work.on(graph, options)
    members = {name: _linear(work, name) for name in work.linear_names()}
    mixture = _Mixture.of(work, members)
    if tell is not None:
        tell(f"a first answer after {time.perf_counter() - started:.1f} s: {mixture.described(work)}")
    first, linear = mixture, dict(members)
    if options.effort > 1:
        members |= _networks(work, mixture, members, options.effort, seed, once)
        mixture = _Mixture.of(work, members)
    if options.single:
        best = max(members, key=lambda name: mixture.weights[name])
        members = {best: members[best]}
        mixture = _Mixture.of(work, members)
    members = _self_trained(work, first, linear, members, mixture)
    if work.folds and not work.validated:
        mixture = mixture.smoothed(work, members)
    model = _assembled(work, members, mixture)
    return Fit(model, report=_report(work, members, mixture, time.perf_counter() - started))


@dataclass(frozen=True)
class Fold:
    """Training nodes, and the held-out nodes whose predictions count; int64 each."""

    train: NDArray[np.int64]
    held_out: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Work:
    """A graph with what all members share: its labels, folds, latent features and other graphs."""

    graph: Graph
    options: AutoOptions
    train: NDArray[np.int64]
    folds: list[Fold]
    validated: bool

    @classmethod
    def on(cls, graph: Graph, options: AutoOptions) -> _Work:
        train, val = graph.train.numpy(), graph.val.numpy()
        labels = graph.labels.numpy()
        if val.size < FEW:
            train = np.sort(np.concatenate([train, val]))
        if np.unique(labels[train]).size < 2:
            raise GraphError(
                f"all labels of {graph.name} are {graph.class_names[labels[train][0]]}: label nodes of "
                "another class too"
            )
        if val.size >= FEW:
            return cls(graph, options, train, [Fold(train, val)], True)
        sizes = np.bincount(labels[train])
        count = int(np.clip(np.median(sizes[sizes > 1]), 2, FOLDS)) if (sizes > 1).any() else 0
        parts = folds(graph, count) if count else []  # a fold takes about as many labels of every class
        return cls(graph, options, train, [Fold(p.train.numpy(), p.val.numpy()) for p in parts], False)

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Class numbers (N); those of nodes that are neither for training nor for validation are not read."""
        return self.graph.labels.numpy()

    @cached_property
    def latent(self) -> Latent:
        found = Latent.fit(self.graph.features)
        rows = found.rows(self.graph.features)
        if float((rows.amax(0) - rows.amin(0)).max()) < SAME:
            raise GraphError(
                f"all nodes of {self.graph.name} have the same features: add others, or leave them out, and "
                "each node gets its own"
            )
        return found

    @cached_property
    def graphs(self) -> dict[str, Any]:
        """The graphs by name; without edges, or if asked for, only that of similar nodes."""
        wanted = {"given": {"given"}, "features": {"features"}, "both": {"both"}}
        every = {"given", "features", "both"} if self.graph.num_edges else {"features"}
        names = wanted.get(self.options.neighbours, every)
        made = make_graphs(self.graph, names, self.options.k, self.options.metric, self.latent)
        return {name: made[name] for name in names}

    @cached_property
    def edges_agree(self) -> float:
        """How far the given edges can be trusted, from 0.1 to 1, judged without labels."""
        if "given" not in self.graphs or "features" not in self.graphs:
            return 1.0
        found = agreement(
            self.latent.rows(self.graph.features),
            self.graph.adjacency.to_scipy(),
            self.graphs["features"].adjacency.to_scipy(),
        )
        return float(np.clip(found / 0.2, 0.1, 1))

    def linear_names(self) -> list[str]:
        return [
            name
            for name, views in LINEAR.items()
            if all(VIEWS[view][0] in ("", *self.graphs) for view in views)
        ]

    def prior(self, name: str) -> float:
        if name in LINEAR:
            trusted = self.edges_agree if name.startswith("given-") and "and" not in name else 1.0
            extra = 1.5 * (1 - self.edges_agree) if name == "features-far" else 0.0
            return PRIOR[name] * trusted + extra
        return NETWORK_PRIOR

    @cached_property
    def views(self) -> dict[str, tuple[Tensor, Scores]]:
        """The mean (r) and the centred rows of length 1 (N, r) of every view."""
        latent = self.latent.rows(self.graph.features)
        found = {}
        for name in {view for member in self.linear_names() for view in LINEAR[member]}:
            spread = spread_view(name, self.graphs.get(VIEWS[name][0], self.graph), latent)
            mean = spread.mean(0)
            found[name] = (mean, unit_rows(spread - mean).double().numpy())
        return found

    def inputs_of(self, member: str) -> Scores:
        """Return what a linear member reads, (N, r) or (N, 2 r)."""
        return np.concatenate([self.views[view][1] for view in LINEAR[member]], 1)

    @cached_property
    def held_out(self) -> NDArray[np.int64]:
        return np.concatenate([fold.held_out for fold in self.folds]) if self.folds else np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class _Member:
    """A fitted member: its tensors, its logits at all nodes (N, C), and at all nodes for each fold.

    ``folds`` may have fewer entries than there are folds.
    """

    name: str
    tensors: dict[str, Tensor]
    logits: Scores
    folds: list[Scores]
    seconds: float = 0.0

    def held_out(self, work: _Work) -> Scores:
        """Return the out-of-fold logits, (h, C), of the folds that it was trained in."""
        pairs = zip(self.folds, work.folds, strict=False)
        return np.concatenate([logits[fold.held_out] for logits, fold in pairs])


def _linear(work: _Work, name: str) -> _Member:
    started, z = time.perf_counter(), work.inputs_of(name)
    weights = _regression(z, work.labels, work.train, work.graph.num_classes)
    logits = z @ weights[0] + weights[1]
    if work.validated:
        folds = [logits]
    else:
        found = (_regression(z, work.labels, fold.train, work.graph.num_classes) for fold in work.folds)
        folds = [z @ weight + bias for weight, bias in found]
    return _Member(name, _linear_tensors(name, *weights), logits, folds, time.perf_counter() - started)


def _linear_tensors(name: str, weight: Scores, bias: Scores) -> dict[str, Tensor]:
    found = {f"linear.{name}.weight": weight, f"linear.{name}.bias": bias}
    return {key: torch.from_numpy(value.astype(np.float32)) for key, value in found.items()}


def _self_trained(
    work: _Work,
    first: _Mixture,
    linear: Mapping[str, _Member],
    members: Mapping[str, _Member],
    mixture: _Mixture,
) -> dict[str, _Member]:
    """Return the members with the linear ones fitted again, to labels and confident predictions.

    Predictions are those of the linear members; of a fold, those without the labels of that fold.
    """
    share = first.self_training(work)
    if not share:
        return dict(members)
    pseudo = _confident(work, first.probabilities(work, linear), work.train)
    at_folds = []
    if not work.validated:
        for number, fold in enumerate(work.folds):
            mean = first.mean({name: member.folds[number] for name, member in linear.items()})
            p = _weighted(first.smooth, {name: _smooth(work, name, mean) for name in first.smooth})
            at_folds.append((fold.train, _confident(work, p, fold.train)))
    found = dict(members)
    for name in (name for name in members if name in LINEAR and mixture.weights[name] > NEGLIGIBLE):
        started, z = time.perf_counter(), work.inputs_of(name)
        weight, bias = _regression_on(work, z, work.train, pseudo, share)
        logits = z @ weight + bias
        each = (_regression_on(work, z, train, chosen, share) for train, chosen in at_folds)
        found[name] = dataclasses.replace(
            members[name],
            tensors=_linear_tensors(name, weight, bias),
            logits=logits,
            folds=[logits] if work.validated else [z @ w + b for w, b in each],
            seconds=members[name].seconds + time.perf_counter() - started,
        )
    return found


def _regression_on(
    work: _Work, z: Scores, train: NDArray[np.int64], pseudo: Pseudo, share: float
) -> tuple[Scores, Scores]:
    nodes, classes = pseudo
    labels = work.labels.copy()
    labels[nodes] = classes
    counts = np.concatenate([np.ones(train.size), np.full(nodes.size, share * PSEUDO_WEIGHT)])
    return _regression(z, labels, np.concatenate([train, nodes]), work.graph.num_classes, counts)


def _regression(
    z: Scores, labels: NDArray[np.int64], nodes: NDArray[np.int64], classes: int, counts: Any = None
) -> tuple[Scores, Scores]:
    """Return weight (r, C) and bias (C) of a logistic regression; classes without a label get a low bias."""
    from sklearn.linear_model import LogisticRegression

    present = np.unique(labels[nodes])
    weight, bias = np.zeros((z.shape[1], classes)), np.full(classes, -8.0)
    model = LogisticRegression(C=STRENGTH, max_iter=100, tol=1e-3).fit(z[nodes], labels[nodes], counts)
    if present.size == 2:  # one logit: half for each class
        weight[:, present] = model.coef_.T * np.array([-0.5, 0.5])
        bias[present] = model.intercept_ * np.array([-0.5, 0.5])
    else:
        weight[:, present], bias[present] = model.coef_.T, model.intercept_
    return weight, bias


def _softmax(logits: Scores) -> Scores:
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    found: Scores = shifted / shifted.sum(1, keepdims=True)
    return found


def _losses(probabilities: Scores, labels: NDArray[np.int64]) -> Scores:
    found: Scores = -np.log(np.maximum(probabilities[np.arange(labels.size), labels], LEAST))
    return found


def _temperature(logits: Scores, labels: NDArray[np.int64], centre: float, width: float = 0.7) -> float:
    """Return the factor of the logits with the least log-loss; its logarithm has a normal prior."""
    from scipy.optimize import minimize_scalar

    def loss(power: float) -> float:
        prior = 0.5 * ((power - np.log(centre)) / width) ** 2
        return float(_losses(_softmax(logits * np.exp(power)), labels).sum() + prior)

    return float(np.exp(minimize_scalar(loss, bounds=(-3, 4), method="bounded").x))


@dataclass(frozen=True)
class _Mixture:
    """How members are put together: temperature and weight of each, smoothing, temperature of the result."""

    temperatures: dict[str, float]
    weights: dict[str, float]
    smooth: dict[str, float]
    temperature: float
    losses: dict[str, float] = field(default_factory=dict)
    accuracies: dict[str, float] = field(default_factory=dict)
    held_out: Scores | None = None
    """Out-of-fold probabilities of the mixture, (h, C)."""

    @classmethod
    def of(cls, work: _Work, members: Mapping[str, _Member]) -> _Mixture:
        start = {name: 2.0 if name in LINEAR else 1.0 for name in members}
        options = _smoothings(work)
        if not work.folds:
            weights = _shares({name: work.prior(name) for name in members})
            return cls(start, weights, options, 1.0)
        labels = work.labels[work.held_out]
        temperatures, losses, accuracies, likelihood = {}, {}, {}, {}
        best = {}
        for name, member in members.items():
            logits = member.held_out(work)
            own = labels[: logits.shape[0]]
            temperatures[name] = _temperature(logits, own, start[name])
            each = _losses(_softmax(logits * temperatures[name]), own)
            losses[name], best[name] = float(each.mean()), each
            accuracies[name] = 100 * float((logits.argmax(1) == own).mean())
        leader = min(
            (name for name in members if name in LINEAR), key=losses.__getitem__, default=next(iter(members))
        )
        for name, each in best.items():  # networks have predictions for some of the folds only
            excess = (
                float((each - best[leader][: each.size]).mean()) if best[leader].size >= each.size else 0.0
            )
            likelihood[name] = work.prior(name) * float(np.exp(-SHARPNESS * labels.size * excess))
        mixture = cls(temperatures, _shares(likelihood), options, 1.0, losses, accuracies)
        return mixture.smoothed(work, members)

    def smoothed(self, work: _Work, members: Mapping[str, _Member]) -> _Mixture:
        """Return the mixture with smoothing and a temperature, from out-of-fold predictions."""
        labels = work.labels[work.held_out]
        options = _smoothings(work)
        parts: dict[str, list[Scores]] = {name: [] for name in options}
        for number, fold in enumerate(work.folds):
            mean = self.mean({n: m.folds[number] for n, m in members.items() if number < len(m.folds)})
            for name in options:
                parts[name].append(_smooth(work, name, mean)[fold.held_out])
        joined = {name: np.concatenate(values) for name, values in parts.items()}
        losses = {name: float(_losses(p, labels).mean()) for name, p in joined.items()}
        least = min(losses.values())
        shares = _shares(
            {
                n: prior * float(np.exp(-SHARPNESS * labels.size * (losses[n] - least)))
                for n, prior in options.items()
            }
        )
        mean = _weighted(shares, joined)
        temperature = _temperature(np.log(np.maximum(mean, LEAST)), labels, 1.0)
        return dataclasses.replace(self, smooth=shares, temperature=temperature, held_out=mean)

    def mean(self, logits: Mapping[str, Scores]) -> Scores:
        each = {name: _softmax(self.temperatures[name] * logits[name]) for name in logits}
        return _weighted(_shares({name: self.weights[name] for name in logits}), each)

    def probabilities(self, work: _Work, members: Mapping[str, _Member]) -> Scores:
        """Return the smoothed probabilities of all nodes, (N, C)."""
        mean = self.mean({name: member.logits for name, member in members.items()})
        return _weighted(self.smooth, {name: _smooth(work, name, mean) for name in self.smooth})

    def self_training(self, work: _Work) -> float:
        """Return how much of the self-training is worth it, 0 to 1.

        Nothing with many labels, and nothing where held-out predictions are hardly better than chance: there
        it would only repeat mistakes. All of it where there is nothing to judge by.
        """
        classes = work.graph.num_classes
        if work.train.size / classes >= PSEUDO_BELOW:
            return 0.0
        if self.held_out is None:
            return 1.0
        right = float((self.held_out.argmax(1) == work.labels[work.held_out]).mean())
        above_chance = (right - 1 / classes) / (1 - 1 / classes)
        return float(np.clip((above_chance - 0.15) / 0.2, 0, 1))

    def described(self, work: _Work) -> str:
        if self.held_out is None:
            return "too few labels to say how accurate it is"
        right = float((self.held_out.argmax(1) == work.labels[work.held_out]).mean())
        return f"{100 * right:.1f} % of {work.held_out.size} held-out nodes are right"


def _weighted(weights: Mapping[str, float], arrays: Mapping[str, Scores]) -> Scores:
    found: Scores = np.sum([weights[name] * array for name, array in arrays.items()], axis=0)
    return found


def _shares(values: Mapping[str, float]) -> dict[str, float]:
    total = sum(values.values())
    return {name: value / total if total > 0 else 1 / len(values) for name, value in values.items()}


def _smoothings(work: _Work) -> dict[str, float]:
    """Return the prior shares of smoothing over the given edges, over similar nodes, and of none."""
    trust = work.edges_agree if "given" in work.graphs else 0.0
    similar = 1.0 if "features" in work.graphs else 0.0
    return _shares({"none": 0.5, "given": trust, "features": similar})


def _smooth(work: _Work, name: str, probabilities: Scores) -> Scores:
    if name not in work.graphs:
        return probabilities
    found: Scores = smoothed(work.graphs[name], torch.from_numpy(probabilities).float()).double().numpy()
    return found


def _confident(work: _Work, p: Scores, train: NDArray[np.int64]) -> Pseudo:
    """Return nodes of the more confident half of each predicted class, as many of each, and their classes."""
    classes = work.graph.num_classes
    predicted, confidence = p.argmax(1), p.max(1)
    free = np.ones(p.shape[0], bool)
    free[train] = False
    rng, chosen = np.random.default_rng(0), []
    for k in range(classes):
        nodes = np.flatnonzero(free & (predicted == k))
        upper = nodes[np.argsort(-confidence[nodes], kind="stable")][: (nodes.size + 1) // 2]
        chosen.append(rng.permutation(upper)[: max(1, PSEUDO // classes)])
    nodes = np.concatenate(chosen)
    return nodes, predicted[nodes]


def _networks(
    work: _Work, mixture: _Mixture, members: Mapping[str, _Member], effort: int, seed: int, once: Once
) -> dict[str, _Member]:
    """Train the networks of an effort on the graph that the linear members favour."""
    on, found = _favourite(work, mixture), {}
    taught = mixture.self_training(work) > 0.5  # whether networks learn from predictions too
    for variant in map(Variant.parse, NETWORKS[effort]):
        name, started = f"{variant.model}+{variant.method}-{on}", time.perf_counter()

        def trained(nodes: Any, p: Scores, part: str, variant: Variant = variant, name: str = name) -> Any:
            kept = partial(once, f"{name}-{part}")
            return _trained(work, variant, on, nodes, p if taught else None, seed, kept)

        state, logits = trained(work.train, mixture.probabilities(work, members), "all")
        folds = [logits] if work.validated else []
        for number, fold in enumerate([] if work.validated else work.folds[:NETWORK_FOLDS]):
            mean = mixture.mean({n: m.folds[number] for n, m in members.items()})
            folds.append(trained(fold.train, mean, f"fold{number}")[1])
        tensors = {f"network.{name}.{key}": value for key, value in state.items()}
        found[name] = _Member(name, tensors, logits, folds, time.perf_counter() - started)
    return found


def _favourite(work: _Work, mixture: _Mixture) -> str:
    """Return the graph whose linear members have the largest weight together; of equals the first."""
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
    work: _Work,
    variant: Variant,
    on: str,
    train_nodes: NDArray[np.int64],
    p: Scores | None,
    seed: int,
    kept: Callable[[Callable[[], Tensor]], Tensor],
) -> tuple[dict[str, Tensor], Scores]:
    """Return the weights of a network, trained on labels and predictions, and its logits (N, C)."""
    labels = np.full(work.graph.num_nodes, UNKNOWN)
    labels[train_nodes] = work.labels[train_nodes]
    if p is not None:
        nodes, classes = _confident(work, p, train_nodes)
        labels[nodes] = classes
    known = torch.from_numpy(np.flatnonzero(labels != UNKNOWN))
    none = known[:0]
    graph = dataclasses.replace(
        work.graphs[on], labels=torch.from_numpy(labels), train=known, val=none, test=none, name="graph"
    )
    settings = preset("", variant.method, model=variant.model)
    half = EPOCHS // 2 if settings.pretrain and variant.method != "none" else 0
    settings = fixed_epochs(settings, epochs=EPOCHS + half, pretrain=half)
    shapes = _shapes(settings, graph)

    def compute() -> Tensor:
        weights = train(graph, settings, seed=seed).weights
        return torch.cat([weights[name].flatten() for name in shapes])

    flat = kept(compute)
    sizes = [tensor.numel() for tensor in shapes.values()]
    pieces = torch.split(flat if flat.numel() == sum(sizes) else compute(), sizes)
    weights = {name: piece.view(shapes[name].shape) for name, piece in zip(shapes, pieces, strict=True)}
    model = restore_model(settings, graph.num_features, graph.num_classes, weights)
    return weights, predict(model, graph).double().numpy()


def _shapes(settings: Any, graph: Graph) -> dict[str, Tensor]:
    from bvat.training.state import build_model

    with torch.device("meta"):
        return dict(build_model(settings, graph.num_features, graph.num_classes).state_dict())


def _assembled(work: _Work, members: Mapping[str, _Member], mixture: _Mixture) -> nn.Module:
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
        tensors |= {f"mean.{view}": work.views[view][0] for view in LINEAR.get(name, ())}
    tensors |= {f"smooth.{name}": torch.tensor(share) for name, share in mixture.smooth.items()}
    return Ensemble(**tensors)


def _report(work: _Work, members: Mapping[str, _Member], mixture: _Mixture, seconds: float) -> dict[str, Any]:
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
        labels = torch.from_numpy(work.labels[work.held_out])
        found = {"folds": len(work.folds), **scores_of(predicted, labels, work.graph.class_names)}
    return {
        "members": sorted(rows, key=lambda row: -float(str(row["weight"]))),
        "estimate": found,
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
