"""How the perturbation is found."""

from bvat.perturb.searches.ascent import (
    AdamAscent,
    FastAscent,
    NoSearch,
    PowerIteration,
    RandomDirection,
    Search,
)  # fmt: skip
from bvat.perturb.searches.smallest_flip import SmallestFlip

__all__ = [
    "AdamAscent", "FastAscent", "NoSearch", "PowerIteration", "RandomDirection", "Search", "SmallestFlip",
]  # fmt: skip
