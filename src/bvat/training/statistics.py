"""Means, standard deviations and confidence intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Sample:
    """Statistics of n seeds: mean, sample standard deviation, and the 95 % interval of the mean."""

    n: int
    mean: float
    std: float
    low: float
    high: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the sample standard deviation, which is 0 for a single value."""
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else 0.0


def summarize(values: Sequence[float | None]) -> dict[str, Any]:
    """Return mean, standard deviation and the values as plain data; mean and std are None without values."""
    known = [value for value in values if value is not None]
    mean, std = mean_and_std(known) if known else (None, None)
    return {"mean": mean, "std": std, "values": list(values)}


def sample(values: Sequence[float], confidence: float = 0.95) -> Sample:
    """Describe values by Student's t distribution; the interval of a single value has no width."""
    from scipy.stats import t

    n, (mean, std) = len(values), mean_and_std(values)
    half = float(t.ppf((1 + confidence) / 2, n - 1)) * std / math.sqrt(n) if n > 1 else 0.0
    return Sample(n, mean, std, mean - half, mean + half)
