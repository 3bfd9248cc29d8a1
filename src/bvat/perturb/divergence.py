"""How far apart two predictions are, and the losses built on predictions, with closed-form gradients."""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from bvat.engine.cpu import DEFAULT_ENGINE
from bvat.engine.tensor import TensorEngine
from bvat.errors import SettingsError


def entropy(logits: Tensor, *, independent: bool = False, engine: TensorEngine = DEFAULT_ENGINE) -> Tensor:
    """Mean conditional entropy ``1/n sum_u E(p_u)``, ``E(p) = -sum_k p_k log p_k`` (second term of Eq. 6).

    With ``independent`` labels, and for a single logit, each logit has an entropy of its own, that of
    ``sigmoid(l)``, and a node has their sum.

    Shapes: logits (n, C); result a scalar. Gradient: ``dE/dl_k = -p_k (log p_k + E)``.

    Example:
        >>> float(entropy(torch.zeros(3, 2)))  # the logarithm of 2
        0.693...
    """
    if independent or logits.shape[1] == 1:
        return engine.mean((F.softplus(logits) - torch.sigmoid(logits) * logits).sum(1))
    return engine.entropy(logits)


class CleanPrediction(NamedTuple):
    """The clean side of a divergence: probabilities and their logarithms, of the same shape."""

    p: Tensor
    log_p: Tensor


class Divergence:
    """A measure of how far a perturbed prediction is from the clean one, node by node.

    Predictions are of one class of C, ``p = softmax(l)``, unless a subclass says otherwise.
    """

    name: str

    def __init__(self, engine: TensorEngine = DEFAULT_ENGINE) -> None:
        self.engine = engine

    def on(self, engine: TensorEngine) -> Self:
        """Return the divergence computed by an engine."""
        return type(self)(engine)

    def predict(self, logits: Tensor) -> CleanPrediction:
        """Return the clean prediction of some logits (n, C); it carries no gradient."""
        return CleanPrediction(*self.engine.softmax_and_log(logits))

    def confidence(self, logits: Tensor) -> Tensor:
        """Return how sure the prediction of each node is, (n)."""
        return self.engine.softmax(logits).amax(1)

    def logits(self, probabilities: Tensor) -> Tensor:
        """Return logits (n, C) that predict these probabilities (n, C)."""
        return self.engine.log(probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny))

    def gradient(self, clean: CleanPrediction, logits: Tensor) -> Tensor:
        """Return the gradient of the sum over the nodes with respect to the logits, (n, C)."""
        return self.value_and_gradient(clean, logits)[1]

    def value_and_gradient(
        self, clean: CleanPrediction, logits: Tensor, q: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the divergence of each node (n) and its gradient with respect to the logits (n, C).

        ``q``, the prediction of the logits (n, C), saves time where it is known.
        """
        raise NotImplementedError


class KL(Divergence):
    """``D_KL(p || q) = sum_k p_k (log p_k - log q_k)``, the divergence of the paper; gradient ``q - p``."""

    name = "kl"

    def gradient(self, clean: CleanPrediction, logits: Tensor) -> Tensor:
        return self.engine.softmax(logits).sub_(clean.p)

    def value_and_gradient(
        self, clean: CleanPrediction, logits: Tensor, q: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        q, log_q = self.engine.softmax_and_log(logits)
        # rounding can push a vanishing KL below zero by 1e-8
        value = self.engine.row_sums((clean.log_p - log_q).mul_(clean.p)).clamp_min_(0)
        return value, q.sub_(clean.p)


class Bernoulli(Divergence):
    """KL of independent yes-or-no labels, ``sum_k KL(sigmoid(l_k) || sigmoid(z_k))``; gradient ``q - p``.

    For several labels that may hold at once, and for one logit (binary classification). The clean side has
    2 C columns: the probability of each label, then that of its absence.
    """

    name = "bernoulli"

    def predict(self, logits: Tensor) -> CleanPrediction:
        """Return the probabilities of yes and of no with their logarithms, (n, 2 C)."""
        log_p = F.logsigmoid(torch.cat([logits, -logits], 1).detach())
        return CleanPrediction(log_p.exp(), log_p)

    def confidence(self, logits: Tensor) -> Tensor:
        """Return the larger probability, yes or no, of the least certain label."""
        return torch.sigmoid(logits.abs()).amin(1)

    def logits(self, probabilities: Tensor) -> Tensor:
        return torch.logit(probabilities, torch.finfo(probabilities.dtype).eps)

    def gradient(self, clean: CleanPrediction, logits: Tensor) -> Tensor:
        return torch.sigmoid(logits.detach()).sub_(clean.p[:, : logits.shape[1]])

    def value_and_gradient(
        self, clean: CleanPrediction, logits: Tensor, q: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        log_q = self.predict(logits).log_p
        value = self.engine.row_sums((clean.log_p - log_q).mul_(clean.p)).clamp_min_(0)
        return value, self.gradient(clean, logits)


class SquaredError(Divergence):
    """``sum_k (q_k - p_k)^2``, bounded by 2 where KL is not; as in the mean-teacher literature."""

    name = "squared"

    def value_and_gradient(
        self, clean: CleanPrediction, logits: Tensor, q: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the squared error of each node (n) and ``2 q (d - sum q d)``, d = q - p, (n, C)."""
        q, row_sums = self.engine.softmax(logits) if q is None else q, self.engine.row_sums
        d = q - clean.p
        return row_sums(d * d), (d - row_sums(q * d)[:, None]).mul_(q).mul_(2)


DIVERGENCES: dict[str, type[Divergence]] = {kind.name: kind for kind in (KL, SquaredError, Bernoulli)}


def refuse_probabilities(logits: Tensor) -> None:
    """Raise SettingsError if the rows of logits (n, C) are probabilities: not negative, with the sum 1."""
    if logits.shape[1] == 1 or bool((logits < 0).any()):
        return
    if bool((logits.sum(1) - 1).abs().max() < 2e-3):  # in half precision the sum is that close
        raise SettingsError(
            "the model returns probabilities, not logits: remove its softmax, or return their logarithms"
        )


def make_divergence(name: str | Divergence) -> Divergence:
    """Return the divergence of a name, or the one given."""
    if not isinstance(name, str):
        return name
    if name not in DIVERGENCES:
        raise SettingsError(f"divergence must be {', '.join(DIVERGENCES)}, not {name!r}")
    return DIVERGENCES[name]()
