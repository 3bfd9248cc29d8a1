"""The regularisers of the paper, and those that they are compared with: choices of nodes and search.

Defaults are those of ``bvat train`` for any graph (:mod:`bvat.perturb.methods`). ``shared`` are the other
fields of :class:`bvat.perturb.Regulariser`: space, divergence, dropout, generator and confidence.
"""

from __future__ import annotations

from typing import Any, Literal

from bvat.errors import SettingsError
from bvat.perturb.methods import OBVATOptions, RandomOptions, SBVATOptions, VATOptions
from bvat.perturb.nodes import AllNodes, DisjointFields
from bvat.perturb.problem import Norm
from bvat.perturb.regulariser import Regulariser
from bvat.perturb.searches import AdamAscent, FastAscent, NoSearch, PowerIteration, RandomDirection


def Consistency(**shared: Any) -> Regulariser:
    """No perturbation: two dropout passes must agree. An ablation that the paper does not have."""
    return Regulariser(AllNodes(), NoSearch(), **{"dropout": "pair", **shared})


def Random(epsilon: float = RandomOptions.epsilon, norm: Norm = "row", **shared: Any) -> Regulariser:
    """A Gaussian direction of length epsilon at every node."""
    return Regulariser(AllNodes(), RandomDirection(epsilon, norm=norm), **shared)


def VAT(
    epsilon: float = VATOptions.epsilon,
    steps: int = VATOptions.steps,
    xi: float = VATOptions.xi,
    **shared: Any,
) -> Regulariser:
    """Virtual adversarial training at every node at once (Section 3.1)."""
    return Regulariser(AllNodes(), PowerIteration(epsilon, steps, xi), **shared)


def SBVAT(
    epsilon: float = SBVATOptions.epsilon,
    count: int = SBVATOptions.count,
    steps: int = SBVATOptions.steps,
    xi: float = SBVATOptions.xi,
    norm: Norm = "row",
    **shared: Any,
) -> Regulariser:
    """Sample-based BVAT: nodes whose receptive fields do not meet (Algorithm 1).

    ``norm="field"`` takes epsilon over each receptive field, as the text says; ``"row"`` over each of its
    rows, as the authors' code does.
    """
    return Regulariser(DisjointFields(count), PowerIteration(epsilon, steps, xi, norm), **shared)


def OBVAT(
    search: Literal["adam", "fast"] = "fast",
    steps: int = OBVATOptions.steps,
    epsilon: float = OBVATOptions.epsilon,
    **shared: Any,
) -> Regulariser:
    """Optimisation-based BVAT: one perturbation matrix for all nodes (Algorithm 2).

    Args:
        search: "fast" takes ``steps`` full steps of length epsilon; "adam" is the paper's search, without a
            bound on the length but with a penalty.
        steps: T; the paper has 10 for Adam.
        epsilon: of the fast search.
        shared: also ``step_size``, ``gamma``, ``start``, ``reduction`` and ``keep_moments`` of
            Adam's search, see :class:`bvat.perturb.AdamAscent`.
    """
    of_adam = ("step_size", "gamma", "start", "reduction", "keep_moments")
    given = {name: shared.pop(name) for name in of_adam if name in shared}
    if search == "fast" and given:
        raise SettingsError(f"{next(iter(given))} belongs to Adam's search: use OBVAT(search='adam', ...)")
    OBVATOptions(search=search)  # checks it
    how = FastAscent(epsilon, steps) if search == "fast" else AdamAscent(steps, **given)
    return Regulariser(AllNodes(), how, **shared)
