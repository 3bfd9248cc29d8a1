from __future__ import annotations

import pytest

from bvat.training.settings import preset
from rank_plan import Plan, fitted
from rank_speed import community_graph, formula, halos


def test_a_plan_scales_with_the_number_of_ranks() -> None:
    row = {"memory_mb": [1000.0], "processor_seconds": [2.0]}
    one = fitted("vat", row, nodes=10**6, edges=10**7, ranks=1, halo=0.1)
    four = fitted("vat", row, nodes=10**6, edges=10**7, ranks=4, halo=0.1)
    assert one.memory_bytes == pytest.approx(1000 * 2**20)
    assert four.memory_bytes == pytest.approx(one.memory_bytes / 4)
    assert one.seconds(1e9) == pytest.approx(2.0)
    assert four.sent_bytes == pytest.approx(one.sent_bytes / 4)
    assert one.seconds(100) < one.seconds(10)


def test_the_plan_sends_what_the_formula_of_the_measurement_says() -> None:
    plan = Plan(nodes=1000, edges=10_000, ranks=2, halo=0.2, passes=25)
    settings = preset("", "obvat", hidden=16, search="adam", steps=10)
    assert plan.sent_bytes == formula("obvat", 100, settings)


def test_metis_has_a_smaller_halo_than_chance_where_there_are_communities() -> None:
    pytest.importorskip("pymetis")
    graph = community_graph(4000, 20_000, size=500)
    assert graph.num_edges == 20_000
    assert halos(graph, 4)["ratio"] < 0.25
