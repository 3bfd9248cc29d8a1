"""How the members of the ensemble are put together: weights and smoothing from out-of-fold predictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from bvat.models.ensemble import LEAST, LINEAR, smoothed
from bvat.training.memory import give_back
from bvat.training.metrics import log_losses, softmax, temperature_of
from bvat.tuning.members import Member, Rows, Scores, Work

PRIOR_LABELS = 4.0
"""So many labels are what the prior weights of the members count as."""
SHARPNESS = 0.5
"""How much of the log-likelihood counts for the smoothing: that of few labels is not sure."""
MANY = 50.0
"""With so many labels per class there is no self-training."""


def pool_weights(chances: Scores, prior: Scores) -> Scores:
    """Return the weights w (M) of a mean of predictions that are the most probable after seeing the labels.

    They maximise ``sum_i log(sum_m w_m chances_im) + PRIOR_LABELS sum_m prior_m log w_m`` by expectation
    maximisation. Where a member has no prediction, its share is its weight.

    Shapes: chances (h, M), what each member gave the right class, nan where it was not asked; prior (M).
    """
    chances = chances[~np.isnan(chances).all(1)]
    missing, weights = np.isnan(chances), prior
    known = np.where(missing, 0.0, chances)
    for _ in range(200):
        shares = known * weights
        shares *= (1 - missing @ weights)[:, None] / shares.sum(1, keepdims=True)
        weights = np.where(missing, weights, shares).sum(0) + PRIOR_LABELS * prior
        weights = weights / weights.sum()
    return weights


@dataclass(frozen=True)
class Mixture:
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
    def of(cls, work: Work, members: Mapping[str, Member]) -> Mixture:
        start = {name: 2.0 if name in LINEAR else 1.0 for name in members}
        options = _smoothings(work)
        if not work.folds:
            weights = shares_of({name: work.prior(name) for name in members})
            return cls(start, weights, options, 1.0)
        labels = work.labels[work.held_out]
        temperatures, losses, accuracies = {}, {}, {}
        chances = np.full((labels.size, len(members)), np.nan)
        for column, (name, member) in enumerate(members.items()):
            logits = member.held_out(work)
            own = labels[: logits.shape[0]]  # networks have predictions for some of the folds only
            temperatures[name] = temperature_of(logits, own, start[name])
            each = log_losses(softmax(logits * temperatures[name]), own)
            chances[: own.size, column] = np.exp(-each)
            losses[name] = float(each.mean())
            accuracies[name] = 100 * float((logits.argmax(1) == own).mean())
        prior = np.array([work.prior(name) for name in members])
        weights = dict(zip(members, pool_weights(chances, prior / prior.sum()).tolist(), strict=True))
        mixture = cls(temperatures, weights, options, 1.0, losses, accuracies)
        return mixture.smoothed(work, members)

    def smoothed(self, work: Work, members: Mapping[str, Member]) -> Mixture:
        """Return the mixture with smoothing and a temperature, from out-of-fold predictions."""
        judged = work.folds[: max(len(member.folds) for member in members.values())]  # a lone network: two
        labels = work.labels[np.concatenate([fold.held_out for fold in judged])]
        options = _smoothings(work)
        parts: dict[str, list[Scores]] = {name: [] for name in options}
        for number, fold in enumerate(judged):
            mean = self.mean({n: m.folds[number] for n, m in members.items() if number < len(m.folds)})
            for name in options:
                parts[name].append(smooth_over(work, name, mean)[fold.held_out])
        joined = {name: np.concatenate(values) for name, values in parts.items()}
        losses = {name: float(log_losses(p, labels).mean()) for name, p in joined.items()}
        least = min(losses.values())
        shares = shares_of(
            {
                n: prior * float(np.exp(-SHARPNESS * labels.size * (losses[n] - least)))
                for n, prior in options.items()
            }
        )
        mean = weighted(shares, joined)
        temperature = temperature_of(np.log(np.maximum(mean, LEAST)), labels, 1.0)
        give_back()
        return dataclasses.replace(self, smooth=shares, temperature=temperature, held_out=mean)

    def mean(self, logits: Mapping[str, Rows]) -> Scores:
        shares = shares_of({name: self.weights[name] for name in logits})
        each = ((shares[n], softmax(self.temperatures[n] * logits[n].astype(np.float64))) for n in logits)
        found: Scores = sum((share * p for share, p in each), np.zeros(()))
        return found

    def probabilities(self, work: Work, members: Mapping[str, Member]) -> Scores:
        """Return the smoothed probabilities of all nodes, (N, C)."""
        mean = self.mean({name: member.logits for name, member in members.items()})
        return self.smoothing(work, mean)

    def smoothing(self, work: Work, mean: Scores) -> Scores:
        return weighted(self.smooth, {name: smooth_over(work, name, mean) for name in self.smooth})

    def teaching(self, work: Work, members: Mapping[str, Member], fold: int | None = None) -> Scores:
        """Return the probabilities (N, C) that self-training reads; of a fold, those without its labels."""
        logits = {n: m.logits if fold is None else m.folds[fold] for n, m in members.items()}
        p = self.smoothing(work, self.mean(logits))
        return softmax(self.temperature * np.log(np.maximum(p, LEAST))) if work.enough else p

    def loss(self, work: Work) -> float:
        """Return the mean log-loss of the held-out nodes."""
        assert self.held_out is not None
        p = softmax(self.temperature * np.log(np.maximum(self.held_out, LEAST)))
        return float(log_losses(p, work.labels[work.held_out]).mean())

    def self_training(self, work: Work) -> float:
        """Return how much of the self-training is worth it, 0 to 1.

        Nothing with many labels, and nothing where held-out predictions are hardly better than chance: there
        it would only repeat mistakes. With few labels, those of a fold are fewer still, and less is asked of
        its predictions. All of it where there is nothing to judge by.
        """
        classes = work.graph.num_classes
        per_class = work.train.size / classes
        if per_class >= MANY:
            return 0.0
        if self.held_out is None:
            return 1.0
        right = float((self.held_out.argmax(1) == work.labels[work.held_out]).mean())
        above_chance = (right - 1 / classes) / (1 - 1 / classes)
        return float(np.clip((above_chance - 0.4 + 0.5 / per_class) / 0.2, 0, 1))

    def described(self, work: Work) -> str:
        if self.held_out is None:
            return "too few labels to say how accurate it is"
        right = float((self.held_out.argmax(1) == work.labels[work.held_out]).mean())
        return f"{100 * right:.1f} % of {work.held_out.size} held-out nodes are right"


def weighted(weights: Mapping[str, float], arrays: Mapping[str, Scores]) -> Scores:
    found: Scores = np.sum([weights[name] * array for name, array in arrays.items()], axis=0)
    return found


def shares_of(values: Mapping[str, float]) -> dict[str, float]:
    total = sum(values.values())
    return {name: value / total if total > 0 else 1 / len(values) for name, value in values.items()}


def _smoothings(work: Work) -> dict[str, float]:
    """Return the prior shares of smoothing over the given edges, over similar nodes, and of none."""
    trust = work.edges_agree if "given" in work.graphs else 0.0
    similar = 1.0 if "features" in work.graphs else 0.0
    return shares_of({"none": 0.5, "given": trust, "features": similar})


def smooth_over(work: Work, name: str, probabilities: Scores) -> Scores:
    if name not in work.graphs:
        return probabilities
    found: Scores = smoothed(work.graphs[name], torch.from_numpy(probabilities).float()).double().numpy()
    return found
