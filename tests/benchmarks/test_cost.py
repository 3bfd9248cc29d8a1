from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bvat.bench.measure import Budget, settings_of
from bvat.training.settings import preset
from cost import Counts, Sizes, cost_of, counts_of
from limit import limit_of, machine_rates, measure_limit

SIZES = Sizes(nodes=10, features=7, hidden=4, classes=3, nnz_x=20, nnz_a=30)


def test_cost_of_a_gcn_epoch_by_hand() -> None:
    counts = counts_of(settings_of("cora", "gcn"))
    assert counts is not None
    cost = cost_of(SIZES, counts)
    x = 8 * 20 + 4 * 11 + 4 * 4 * 17  # X W0
    xt = 8 * 20 + 4 * 8 + 4 * 4 * 17  # Xᵀ G
    wide, narrow = 8 * 30 + 4 * 11 + 4 * 4 * 20, 8 * 30 + 4 * 11 + 4 * 3 * 20  # Â on 4 and on 3 columns
    small = 4 * (40 + 12 + 30)  # the three products with W1 read and write the same sizes
    assert cost.bytes == 2 * x + xt + 3 * (wide + narrow + small) + small + 28 * (28 + 12)
    products = 3 * 2 * 20 * 4 + 3 * 2 * 30 * (4 + 3) + 4 * 2 * 10 * 4 * 3
    assert cost.flops == products + 12 * (28 + 12)


def test_a_search_step_adds_a_pass_there_and_back() -> None:
    ten, nine = (counts_of(preset("cora", "obvat", steps=steps)) for steps in (10, 9))
    assert ten is not None
    assert nine is not None
    assert ten.products()["a_hidden"] - nine.products()["a_hidden"] == 2
    assert ten == replace(
        nine,
        forward=nine.forward + 1,
        backward=nine.backward + 1,
        softmax=nine.softmax + 1,
        effect=nine.effect + 2,
        search_adam=nine.search_adam + 1,
    )


@pytest.mark.parametrize(("masks", "project"), [("fresh", 2 + 11), ("pair", 3), ("reuse", 2), ("shared", 2)])
def test_projections_follow_the_masks(masks: str, project: int) -> None:
    counts = counts_of(preset("cora", "obvat", masks=masks, steps=10))
    assert counts is not None
    assert counts.project == project
    assert counts.collect == (2 if project > 2 else 1)


def test_no_cost_where_the_work_is_random() -> None:
    assert counts_of(preset("cora", "sbvat")) is None
    assert limit_of(SIZES, preset("cora", "sbvat"), 1.0, {"memory_gb_s": 1.0, "gflop_s": 1.0}) is None


def test_a_regulariser_of_weight_zero_costs_nothing() -> None:
    assert counts_of(preset("cora", "vat", beta=0.0, alpha=0.0)) == Counts()


def test_the_limit_is_the_longer_of_the_two_times() -> None:
    settings = settings_of("cora", "gcn")
    slow_memory = limit_of(SIZES, settings, 2.0, {"memory_gb_s": 1e-3, "gflop_s": 1e9})
    slow_arithmetic = limit_of(SIZES, settings, 2.0, {"memory_gb_s": 1e9, "gflop_s": 1e-3})
    assert slow_memory is not None
    assert slow_arithmetic is not None
    assert slow_memory["limit_ms"] == slow_memory["bytes_ms"] == slow_memory["bytes"] / 1e3
    assert slow_arithmetic["limit_ms"] == slow_arithmetic["flops_ms"] == slow_arithmetic["flops"] / 1e3
    assert slow_memory["fraction"] == slow_memory["limit_ms"] / 2.0


def test_rates_are_positive() -> None:
    rates = machine_rates(large=2**16, repeats=1)
    assert min(rates.values()) > 0
    assert rates["memory_gb_s"] == max(rates["copy_gb_s"], rates["triad_gb_s"])


def test_epochs_and_products_are_compared_with_the_limit(small_file: Path) -> None:
    rates = {"memory_gb_s": 1.0, "gflop_s": 1.0}
    budget = Budget(warmup=1, rounds=1, seconds=0.0, min_rounds=1)
    found = measure_limit(str(small_file), rates, budget=budget)
    limit = found["methods"]
    assert set(limit) == {"gcn", "consistency", "random", "vat", "obvat", "obvat-fast"}
    assert limit["obvat"]["bytes"] > limit["vat"]["bytes"] > limit["gcn"]["bytes"]
    for row in limit.values():
        assert row["fraction"] == pytest.approx(row["limit_ms"] / row["epoch_ms"])
        assert row["products_ms"] > 0
