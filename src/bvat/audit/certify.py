"""``certify``: how far the features may change, in L2, before a prediction can change: a proof for each node.

A model is read as layers ``h <- relu(P h W + b)``, the last one without relu, where P is a polynomial of Â. A
relu changes by a slope in [0, 1] times the change of its input, so with R added to the features the margin
between the classes c and k of node v changes by

    ``sum_w <R_w, sum over paths from w to v of (product of their weights) q>``,  ``|q| <= s_ck``,

and hence by at most ``s_ck norm_v``, where norm_v depends on v's row of the product of all ``|P|`` and on the
budget, and s_ck on the weights alone (:mod:`bvat.audit.slopes`). With one hidden layer and ``Â >= 0``, what
is known of each relu proves larger radii (:mod:`bvat.audit.tangents`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from bvat.audit.slopes import UNIT, slope_bounds
from bvat.audit.tangents import Relus, wider
from bvat.errors import SettingsError, TrainingError
from bvat.graph import Graph
from bvat.graph.html import html_table
from bvat.inference.classifier import Classifier
from bvat.models.appnp import APPNP
from bvat.models.gcn import GCN
from bvat.models.mlp import MLP
from bvat.models.random_propagation import RandomPropagation
from bvat.models.sgc import SGC

Budget = Literal["graph", "rows", "node"]
BUDGETS: tuple[Budget, ...] = get_args(Budget)
_NUMBERS_AT_ONCE = 2**24
"""Entries of the rows of a power of Â that are held at once."""

_UNDERFLOW = 1e-290
"""More than all that underflow can hide in a logit."""


@dataclass(frozen=True)
class Certificate:
    """What :func:`certify` proved, one entry for each of N nodes.

    Shapes: radius float64 (N), predicted int64 (N), by_class float64 (N, C). No change of the features with a
    norm below ``radius`` changes the class, and none below ``by_class[v, k]`` makes class k more likely than
    the predicted one, for which the entry is infinite; the norm is what ``budget`` says.
    """

    budget: Budget
    predicted: Tensor
    by_class: Tensor

    @property
    def radius(self) -> Tensor:
        return self.by_class.amin(1)

    def certified_accuracy(self, labels: Tensor, sizes: Sequence[float]) -> Tensor:
        """Return the share of nodes that are right and stay so under every change of each size.

        Shapes: labels int64 (N), -1 for unknown, which do not count; result float64 (len(sizes)).
        """
        known = labels.cpu() >= 0
        right = (self.predicted == labels.cpu())[known]
        reach = torch.where(right, self.radius[known], -1.0)
        return torch.stack([(reach > size).double().mean() for size in sizes])

    def _repr_html_(self) -> str:
        tenth, median = np.quantile(self.radius.numpy(), [0.1, 0.5], method="lower")
        return html_table(
            f"Certificate of {self.radius.numel():,} nodes, budget {self.budget}",
            {
                "median radius": f"{median:.4g}",
                "the most fragile tenth: at most": f"{tenth:.4g}",
                "nodes for which nothing is proved": f"{int((self.radius == 0).sum()):,}",
            },
        )


class Layer(NamedTuple):
    """``h <- sum_k theta_k Â^k h W + b`` in double precision, all theta_k >= 0.

    Shapes: theta (K + 1); weight (H, H'); bias and size (H'), where ``size`` bounds the terms that were added
    up to the bias, so that their rounding errors are known.
    """

    theta: NDArray[np.float64]
    weight: NDArray[np.float64]
    bias: NDArray[np.float64]
    size: NDArray[np.float64]


def certify(model: Any, graph: Graph, budget: Budget = "graph") -> Certificate:
    """Prove for each node how far the features may change before its class can change, without dropout.

    ``r_v = min_k margin_vk / (s_ck norm_v)``, with the row ``p = |P|_v`` of the product of all propagations
    (``Â²`` for a GCN of two layers) and

    - budget "graph": the Frobenius norm of the change of all features; ``norm_v = |p|_2``;
    - budget "rows": the largest norm of a row, all rows may change; ``norm_v = |p|_1``;
    - budget "node": the norm of the change of a single node, whichever it is; ``norm_v = max p``.

    The model is the function in exact arithmetic whose weights, features and Â are the given numbers.
    Rounding errors of the proof are bounded and taken off the radius. At a radius of 0 nothing is proved.

    Args:
        model: a GCN, SGC, APPNP, RandomPropagation or MLP, or a classifier that holds one of them.
        graph: the graph.
        budget: what the norm of a change is.

    Raises:
        SettingsError: the model is of another kind.
        TrainingError: weights or features are not finite.

    Example:
        >>> found = certify(model, graph, "rows")
        >>> found.radius.shape
        torch.Size([300])
    """
    if budget not in BUDGETS:
        raise SettingsError(f"there is no budget {budget!r}: use graph, rows or node")
    return certificates(model, graph, (budget,))[0]


def certificates(model: Any, graph: Graph, budgets: Sequence[Budget] = BUDGETS) -> list[Certificate]:
    """Return what :func:`certify` proves for several budgets, which share most of the work."""
    graph.targets.require_one_class("a certificate", "certify a model of one class per node")
    layers = read_layers(model)
    matrix = graph.propagation.to_scipy().astype(np.float64)
    if matrix.shape[0] != matrix.shape[1]:
        raise SettingsError(
            "a certificate needs the whole graph: give a graph that is not divided into parts"
        )
    with np.errstate(invalid="ignore", over="ignore"):  # of numbers that are not finite, refused below
        passes = _passes(layers, matrix, graph.features)
    logits, error = passes[-1]
    if not np.isfinite(error).all():
        raise TrainingError("the model has weights, or the graph has features, that are not finite numbers")
    rows, predicted = np.arange(logits.shape[0]), logits.argmax(1)
    margin = logits[rows, predicted][:, None] - logits
    margin -= 2 * (error[rows, predicted][:, None] + error) + UNIT * np.abs(margin)
    slope = slope_bounds([layer.weight for layer in layers])[predicted]
    thetas = [layer.theta for layer in layers]
    propagations, found = _hidden_propagations(thetas, matrix), []
    for budget, norm in zip(budgets, _row_norms(thetas, abs(matrix), budgets), strict=True):
        proved = _below(margin, slope * norm[:, None])
        proved[rows, predicted] = np.inf
        if propagations is not None:
            (reach,) = _row_norms(thetas[:1], matrix, (budget,))
            relus = Relus(*passes[0], reach, layers[0].weight, layers[1].weight)
            outer, inner = propagations
            proved = wider(relus, outer, inner, budget, margin, predicted, proved)
        found.append(Certificate(budget, torch.from_numpy(predicted), torch.from_numpy(proved)))
    return found


def _hidden_propagations(thetas: Sequence[NDArray[Any]], matrix: Any) -> Any:
    """Return P2 and P1 around one hidden layer; P1 is None if P2 is diagonal; None if this proof has none."""
    degrees = [len(theta) - 1 for theta in thetas]
    if len(thetas) != 2 or degrees[1] > 1 or min(degrees[0], 2) * degrees[1] > 1 or (matrix.data < 0).any():
        return None
    (_, outer), *_ = _blocks(thetas[1], matrix)
    if not degrees[1]:
        return outer, None
    (_, inner), *_ = _blocks(thetas[0], matrix)
    return outer, inner


def _below(margin: NDArray[Any], change: NDArray[Any]) -> NDArray[Any]:
    """Return a number below the quotient of ``margin`` and ``change``, itself a rounded product, or 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = np.where(margin > 0, margin / change, 0.0) * (1 - 8 * UNIT)
    return np.maximum(np.nextafter(quotient, -np.inf), 0.0)


def read_layers(model: Any) -> list[Layer]:
    """Return a model's layers, the first one first; raise SettingsError for models without a proof."""
    held = getattr(model, "classifier_", model)  # of a NodeClassifier
    models = held.models if isinstance(held, Classifier) else (held,)
    if len(models) != 1:
        raise SettingsError(
            f"{len(models)} models whose probabilities are averaged have no certificate: certify one of them"
        )
    (found,) = models
    read = _READERS.get(type(found))
    if read is None:
        raise SettingsError(
            f"there is no certificate for {type(found).__name__}: only models that spread features by fixed "
            "weights have one (GCN, SGC, APPNP, RandomPropagation, MLP), because attention and unknown "
            "modules can amplify a change without a known bound"
        )
    layers = [
        Layer(np.asarray(theta, np.float64), *_folded(found, at, weight))
        for at, (theta, weight) in enumerate(read(found))
    ]
    if layers[-1].weight.shape[1] == 1:  # one logit l stands for the logits (0, l)
        last = layers[-1]
        pad = [np.concatenate([np.zeros_like(part), part], -1) for part in last[1:]]
        layers[-1] = Layer(last.theta, *pad)
    return layers


def _folded(model: Any, at: int, given: Tensor) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return weight, bias and size of a layer, with the batch normalisation of its input in them."""
    weight: NDArray[Any] = given.detach().cpu().double().numpy()
    biases = model.biases
    bias = biases[at].detach().cpu().double().numpy() if len(biases) else np.zeros(weight.shape[1])
    norms = getattr(model, "norms", ())
    if not at or not len(norms):
        return weight, bias, np.abs(bias)
    norm = norms[at - 1]
    parts = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    factor, shift, mean, variance = (part.detach().cpu().double().numpy() for part in parts)
    factor = factor / np.sqrt(variance + norm.eps)
    size = np.abs(bias) + (np.abs(shift) + np.abs(mean * factor)) @ np.abs(weight)
    return factor[:, None] * weight, bias + (shift - mean * factor) @ weight, size


_Read = Callable[[Any], list[tuple[Sequence[float], Tensor]]]


def _appnp(model: Any) -> list[tuple[Sequence[float], Tensor]]:
    stay, steps = 1 - model.teleport, model.power_steps
    theta = [model.teleport * stay**k for k in range(steps)] + [stay**steps]
    return [*(((1.0,), w) for w in list(model.weights)[:-1]), (theta, model.weights[-1])]


def _random_propagation(model: Any) -> list[tuple[Sequence[float], Tensor]]:
    theta = [model.first_share * model.ratio**k for k in range(model.power_steps + 1)]
    return [(theta, model.projection()), *(((1.0,), w) for w in list(model.weights)[1:])]


_READERS: dict[type, _Read] = {
    GCN: lambda model: [((0.0, 1.0), w) for w in model.weights],
    SGC: lambda model: [((*[0.0] * model.layers, 1.0), model.weights[0])],
    MLP: lambda model: [((1.0,), w) for w in model.weights],
    APPNP: _appnp,
    RandomPropagation: _random_propagation,
}


def _passes(layers: Sequence[Layer], matrix: Any, features: Any) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Return the outputs of the layers before relu and bounds of their rounding errors, (N, H) each.

    A sum of n products is off by at most ``γ_n = n u / (1 - n u)`` times the sum of their absolute values, u
    the unit roundoff. A relu adds no error. So logits made by sums of n_1, n_2, ... terms one after another
    are off by at most ``γ_{n_1 + n_2 + ...}`` times the same pass with absolute values and without relu.
    """
    x = features.to_scipy() if hasattr(features, "to_scipy") else features.values.cpu().numpy()
    state, size = x.astype(np.float64), abs(x).astype(np.float64)
    degree, terms = int(np.diff(matrix.indptr).max(initial=0)), 0
    positive, found = abs(matrix), []
    for at, (theta, weight, bias, of_bias) in enumerate(layers):
        if at:
            state = np.maximum(state, 0)
        state = _polynomial(theta, matrix, state @ weight) + bias
        size = _polynomial(theta, positive, size @ np.abs(weight)) + of_bias
        terms += weight.shape[0] * 2 + (degree + 2) * (len(theta) + 1) + 16
        found.append((state, 2 * terms * UNIT * size + _UNDERFLOW))
    return found


def _polynomial(theta: NDArray[Any], matrix: Any, start: Any) -> Any:
    """Return ``sum_k theta_k Â^k start`` by Horner's rule; start, result (N, H)."""
    state = theta[-1] * start
    for share in theta[-2::-1]:
        state = matrix @ state
        if share:
            state += share * start
    return state


def _row_norms(
    thetas: Sequence[NDArray[Any]], matrix: Any, budgets: Sequence[Budget]
) -> list[NDArray[np.float64]]:
    """Return upper bounds of norm_v for each budget, (N); matrix has no negative entries.

    All numbers are at least 0, so rounding changes them by at most a factor of ``1 ± γ_n``.
    """
    theta = np.ones(1)
    for each in thetas:
        theta = np.convolve(theta, each)
    size, degree = matrix.shape[0], int(np.diff(matrix.indptr).max(initial=0))
    margin = 1 + 4 * UNIT * ((degree + 4) * (len(theta) + 1) + size + 16)
    found = {budget: np.zeros(size) for budget in budgets}
    if "rows" in found:
        found["rows"] = _polynomial(theta, matrix, np.ones((size, 1)))[:, 0]
    for rows, part in _blocks(theta, matrix) if set(budgets) - {"rows"} else ():
        if "graph" in found:
            found["graph"][rows] = np.sqrt((part * part).sum(axis=1))
        if "node" in found:
            largest = part.max(axis=1)
            found["node"][rows] = largest if isinstance(part, np.ndarray) else largest.toarray()
    return [norm * margin for norm in found.values()]


def _blocks(theta: NDArray[Any], matrix: Any) -> Any:
    """Yield which rows, and these rows of ``sum_k theta_k Â^k``: sparse up to Â², dense beyond."""
    size = matrix.shape[0]
    if len(theta) <= 3:
        powers = [sp.eye_array(size, format="csr"), matrix, matrix @ matrix if len(theta) == 3 else None]
        yield slice(None), sum(share * power for share, power in zip(theta, powers, strict=False) if share)
        return
    transposed, step = matrix.T.tocsr(), max(1, _NUMBERS_AT_ONCE // max(1, size))
    for start in range(0, size, step):
        chosen = np.arange(start, min(start + step, size))
        basis = np.zeros((size, chosen.size))
        basis[chosen, np.arange(chosen.size)] = 1
        yield chosen, _polynomial(theta, transposed, basis).T
