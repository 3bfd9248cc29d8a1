"""Means, standard deviations and intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Sample:
    """What n seeds say: mean, sample standard deviation, and the 95 % interval of the mean."""

    n: int
    mean: float
    std: float
    low: float
    high: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def sample(values: Sequence[float], confidence: float = 0.95) -> Sample:
    """Describe values by Student's t distribution; one value alone gets an interval of no width."""
    from scipy.stats import t

    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return Sample(1, mean, 0.0, mean, mean)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = float(t.ppf((1 + confidence) / 2, n - 1)) * std / math.sqrt(n)
    return Sample(n, mean, std, mean - half, mean + half)
