"""Perturbations and the regularisers built on them.

A regulariser = which nodes (``nodes``) x which perturbation space (``spaces``) x how to search (``searches``)
x which divergence (``divergence``). ``methods`` is the table of training methods; it imports nothing heavy,
and so the names here are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bvat.perturb.divergence import KL, Bernoulli, SquaredError, entropy
    from bvat.perturb.flag import FLAG
    from bvat.perturb.nodes import AllNodes, DisjointFields, Selection
    from bvat.perturb.regulariser import Outcome, Regulariser
    from bvat.perturb.samples import GRAND
    from bvat.perturb.searches import AdamAscent, FastAscent, NoSearch, PowerIteration, RandomDirection
    from bvat.perturb.shorthands import OBVAT, SBVAT, VAT, Consistency, Random
    from bvat.perturb.terms import Method, Term

_HOME = {
    "divergence": ["KL", "Bernoulli", "SquaredError", "entropy"],
    "nodes": ["AllNodes", "DisjointFields", "Selection"],
    "flag": ["FLAG"],
    "regulariser": ["Outcome", "Regulariser"],
    "samples": ["GRAND"],
    "shorthands": ["OBVAT", "SBVAT", "VAT", "Consistency", "Random"],
    "terms": ["Method", "Term"],
    "searches": ["AdamAscent", "FastAscent", "NoSearch", "PowerIteration", "RandomDirection"],
}
_MODULE_OF = {name: f"bvat.perturb.{module}" for module, names in _HOME.items() for name in names}

__all__ = [
    "FLAG", "GRAND", "KL", "OBVAT", "SBVAT", "VAT", "AdamAscent", "AllNodes", "Bernoulli", "Consistency",
    "DisjointFields", "FastAscent", "Method", "NoSearch", "Outcome", "PowerIteration", "Random",
    "RandomDirection", "Regulariser", "Selection", "SquaredError", "Term", "entropy",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'bvat.perturb' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
