"""Perturbations and the regularisers built on them.

A regulariser = which nodes (``nodes``) x which perturbation space (``spaces``) x how to search
(``searches``) x which divergence (``divergence``).
"""

from bvat.perturb.divergence import KL, SquaredError, entropy
from bvat.perturb.nodes import AllNodes, DisjointFields, Selection
from bvat.perturb.regulariser import OBVAT, SBVAT, VAT, Consistency, Outcome, Random, Regulariser
from bvat.perturb.searches import AdamAscent, NoSearch, PowerIteration, RandomDirection

__all__ = [
    "KL",
    "OBVAT",
    "SBVAT",
    "VAT",
    "AdamAscent",
    "AllNodes",
    "Consistency",
    "DisjointFields",
    "NoSearch",
    "Outcome",
    "PowerIteration",
    "Random",
    "RandomDirection",
    "Regulariser",
    "Selection",
    "SquaredError",
    "entropy",
]
