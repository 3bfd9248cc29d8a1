"""How the perturbation is found, one file per search."""

from bvat.perturb.searches.adam_ascent import AdamAscent
from bvat.perturb.searches.base import NoSearch, RandomDirection, Search
from bvat.perturb.searches.fast_ascent import FastAscent
from bvat.perturb.searches.power_iteration import PowerIteration
from bvat.perturb.searches.smallest_flip import SmallestFlip

__all__ = [
    "AdamAscent", "FastAscent", "NoSearch", "PowerIteration", "RandomDirection", "Search", "SmallestFlip",
]  # fmt: skip
