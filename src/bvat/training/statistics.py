"""Means, standard deviations and confidence intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
        return asdict(self)


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the sample standard deviation, which is 0 for a single value."""
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else 0.0


def summarize(values: Sequence[float | None]) -> dict[str, Any]:
    """Return mean, standard deviation and the values as plain data.

    Without values the mean is None; a single value has no standard deviation.
    """
    known = [value for value in values if value is not None]
    mean, std = mean_and_std(known) if known else (None, None)
    return {"mean": mean, "std": std if len(known) > 1 else None, "values": list(values)}


def sample(values: Sequence[float], confidence: float = 0.95) -> Sample:
    """Describe values by Student's t distribution; the interval of a single value has no width."""
    from scipy.special import stdtrit  # what scipy.stats.t.ppf calls, without importing all of scipy.stats

    n, (mean, std) = len(values), mean_and_std(values)
    half = float(stdtrit(n - 1, (1 + confidence) / 2)) * std / math.sqrt(n) if n > 1 else 0.0
    return Sample(n, mean, std, mean - half, mean + half)


def clear_sign(difference: Mapping[str, Any]) -> int:
    """Return 1 or -1 if the interval of a difference is above or below zero, else 0.

    Args:
        difference: a :class:`Sample` as a dict; that of a single value has no interval.
    """
    if difference["n"] < 2:
        return 0
    return int(difference["low"] > 0) - int(difference["high"] < 0)


FEW_NODES = 1000
"""An accuracy on fewer nodes than this is shown with its interval."""


def wilson(accuracy: float, nodes: int, z: float = 1.959964) -> tuple[float, float]:
    """Return the 95 % interval of an accuracy in percent that was measured on some nodes (Wilson, 1927).

    It says how much the accuracy on further nodes of the same kind may differ; unlike ``± z sigma`` it keeps
    within 0 and 100 and has a width at 100 % too.

    Example:
        >>> tuple(round(bound, 1) for bound in wilson(60.0, 20))
        (38.7, 78.1)
    """
    p, z2 = accuracy / 100, z * z
    centre = (p + z2 / (2 * nodes)) / (1 + z2 / nodes)
    half = z / (1 + z2 / nodes) * math.sqrt(p * (1 - p) / nodes + z2 / (4 * nodes * nodes))
    return max(0.0, 100 * (centre - half)), min(100.0, 100 * (centre + half))


def accuracy_summary(values: Sequence[float | None], nodes: int) -> dict[str, Any] | None:
    """Return :func:`summarize` of accuracies on the same nodes, with the interval of the mean; None without.

    Args:
        values: percent, one per seed.
        nodes: number of nodes they were measured on.
    """
    found = summarize(values)
    if not nodes or found["mean"] is None:
        return None
    low, high = wilson(found["mean"], nodes)
    return {**found, "nodes": nodes, "low": low, "high": high}


def accuracy_text(mean: float, nodes: int, std: float | None = None, digits: int = 2) -> str:
    """Return an accuracy in words: with ``± std`` over several seeds, with its interval on few nodes.

    Example:
        >>> accuracy_text(60.0, 20)
        '60.00 % (95 % interval 38.7 to 78.1 on 20 nodes)'
        >>> accuracy_text(81.5, 1000, 0.7)
        '81.50 ± 0.70 %'
    """
    text = f"{mean:.{digits}f} %" if std is None else f"{mean:.{digits}f} ± {std:.{digits}f} %"
    if not 0 < nodes < FEW_NODES:
        return text
    low, high = wilson(mean, nodes)
    return f"{text} (95 % interval {low:.1f} to {high:.1f} on {nodes} nodes)"
