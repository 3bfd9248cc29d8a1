"""How the perturbation is found."""

from bvat.perturb.searches.adam_ascent import AdamAscent
from bvat.perturb.searches.base import NoSearch, RandomDirection, Search
from bvat.perturb.searches.full_steps import FastAscent, PowerIteration
from bvat.perturb.searches.smallest_flip import SmallestFlip

__all__ = [
    "AdamAscent", "FastAscent", "NoSearch", "PowerIteration", "RandomDirection", "Search", "SmallestFlip",
]  # fmt: skip
