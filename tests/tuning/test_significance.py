"""p-values, corrections and ranks against scipy and published numbers."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from bvat.tuning.significance import SAMPLES, alike, holm, permutation_test, rank_methods


def by_scipy(differences: np.ndarray, **more: object) -> float:
    found = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", vectorized=True, **more
    )
    return float(found.pvalue)


@pytest.mark.parametrize("pairs", [2, 3, 7, 10, 13])
def test_few_pairs_are_exact(pairs: int) -> None:
    for shift in (0.0, 0.4, 3.0):
        d = np.random.default_rng(pairs).normal(shift, 1, pairs)
        assert permutation_test(d.tolist()) == pytest.approx(by_scipy(d, n_resamples=2**pairs))


def test_ties_and_zeros_are_exact() -> None:
    for d in ([0.0, 0.0, 0.0], [1.0, -1.0], [0.1, 0.2, 0.3, 0.0], [0.1] * 6, [100 / 3, -100 / 3, 100 / 3]):
        signs = np.array(list(product((1, -1), repeat=len(d))))
        sums = np.array([sum(row * np.array(d)) for row in signs])
        by_hand = np.mean(np.abs(sums) >= abs(sum(d)) - 1e-9)
        assert permutation_test(d) == pytest.approx(by_hand)


def test_many_pairs_are_sampled() -> None:
    d = np.random.default_rng(1).normal(0.35, 1, 30)
    found = permutation_test(d.tolist())
    assert found == permutation_test(d.tolist())
    reference = by_scipy(d, n_resamples=200_000, rng=np.random.default_rng(2))
    assert abs(found - reference) < 4 * np.sqrt(reference / SAMPLES)
    assert permutation_test([1.0] * 40) == 1 / (1 + SAMPLES)


def test_one_pair_has_no_p_value() -> None:
    with pytest.raises(ValueError, match="two pairs"):
        permutation_test([1.0])


def test_holm() -> None:
    """The example of Holm's step-down: sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1, never falling."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]


def test_ranks() -> None:
    scores = np.array([[0.9, 0.8, 0.7], [0.8, 0.8, 0.5], [0.6, 0.9, 0.1], [0.7, 0.6, 0.5]])
    found = rank_methods(scores)
    assert found is not None
    assert found["ranks"] == [(1 + 1.5 + 2 + 1) / 4, (2 + 1.5 + 1 + 2) / 4, 3.0]
    assert found["critical_difference"] == pytest.approx(2.343 * np.sqrt(3 * 4 / (6 * 4)), abs=1e-3)
    assert found["friedman_p"] == stats.friedmanchisquare(*scores.T).pvalue
    same = rank_methods(np.ones((4, 3)))
    assert same is not None
    assert (same["ranks"], same["friedman_p"]) == ([2.0, 2.0, 2.0], 1.0)
    assert rank_methods(scores[:2]) is None
    assert rank_methods(scores[:, :2]) is None


def test_published_critical_difference() -> None:
    """Demsar (2006), Table 5: q = 2.569 for four methods; with 14 data sets CD = 1.25."""
    found = rank_methods(np.random.default_rng(0).random((14, 4)))
    assert found is not None
    assert found["critical_difference"] == pytest.approx(1.25, abs=0.005)


def test_alike() -> None:
    assert alike([3.0, 1.0, 2.0], 0.5) == []
    assert alike([1.0, 1.4, 1.8, 3.0], 1.0) == [(1.0, 1.8)]
    assert alike([1.0, 2.0, 3.0, 4.0], 1.0) == [(1.0, 2.0), (2.0, 3.0), (3.0, 4.0)]
