"""Whether differences are more than chance: permutation tests, Holm's correction, ranks over graphs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXACT = 13
"""Up to so many pairs all signs are tried; beyond, as many are sampled as scipy does by default."""
SAMPLES = 9_999
LEVEL = 0.05
"""What counts as significant."""


def permutation_test(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of paired differences: if a method did not matter, each sign is chance.

    ``p = P(|sum_i s_i d_i| >= |sum_i d_i|)`` over signs ``s``: all of them for few pairs, so that p is a
    multiple of ``2 / 2^n``; else 9,999 random ones, the same every time, and ``(count + 1) / (samples + 1)``.

    Example:
        >>> permutation_test([1.0, 2.0, 3.0, 1.5, 0.5])
        0.0625
    """
    d = np.asarray(differences, dtype=np.float64)
    if d.size < 2:
        raise ValueError("a permutation test needs at least two pairs")
    observed = abs(d.sum())
    least = observed - 1e-12 * np.abs(d).sum()  # sums in another order differ by rounding
    if d.size <= EXACT:
        signs = 1 - 2 * ((np.arange(2**d.size)[:, None] >> np.arange(d.size)) & 1)
        return float((np.abs(signs @ d) >= least).mean())
    signs = 1 - 2 * np.random.default_rng(0).integers(0, 2, (SAMPLES, d.size), dtype=np.int8)
    return float((1 + (np.abs(signs @ d) >= least).sum()) / (1 + SAMPLES))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm, 1979): ``max_{j <= i} min(1, (m - j + 1) p_(j))``.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    factors = len(order) - np.arange(len(order))
    found = np.empty(len(order))
    found[order] = np.minimum(1, np.maximum.accumulate(factors * np.asarray(p_values)[order]))
    return [float(value) for value in found]


def rank_methods(scores: NDArray[np.float64]) -> dict[str, Any] | None:
    """Return the mean ranks of methods over graphs, and how far apart clearly different ones are.

    Rank 1 is the best; ties share their mean rank. Friedman's test asks whether the methods differ at all.
    Two methods differ (Nemenyi, at 5 %) if their mean ranks are ``CD = q sqrt(k (k + 1) / (6 n))`` apart, for
    k methods on n graphs (Demsar, 2006). None for fewer than three graphs or methods.

    Shapes: scores (graphs, methods), higher is better.
    """
    n, k = scores.shape
    if n < 3 or k < 3:
        return None
    from scipy import stats

    ranks = stats.rankdata(-scores, axis=1).mean(0)
    same = bool((scores == scores[:, :1]).all())  # Friedman's statistic is 0 / 0
    q = float(stats.studentized_range.ppf(1 - LEVEL, k, math.inf)) / math.sqrt(2)
    return {
        "ranks": ranks.tolist(),
        "critical_difference": q * math.sqrt(k * (k + 1) / (6 * n)),
        "friedman_p": 1.0 if same else float(stats.friedmanchisquare(*scores.T).pvalue),
        "graphs": n,
    }


def alike(ranks: Sequence[float], critical: float) -> list[tuple[float, float]]:
    """Return the widest ranges of mean ranks in which no two methods differ, each from the best to the worst.

    Example:
        >>> alike([1.0, 2.0, 2.5, 4.0], 1.6)
        [(1.0, 2.5), (2.5, 4.0)]
    """
    values, found = sorted(ranks), list[tuple[float, float]]()
    for low in values:
        high = max(value for value in values if value - low <= critical)
        if high > low and all(high > before for _, before in found):
            found.append((low, high))
    return found
