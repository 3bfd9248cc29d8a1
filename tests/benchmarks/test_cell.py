from __future__ import annotations

import sys

import pytest

from bvat.bench.measure import Budget
from cell import Cell, run_cell


@pytest.mark.slow
def test_a_cell_runs_in_a_process_of_its_own() -> None:
    source = {"nodes": 400, "edges": 4000, "features": 20_000, "classes": 4}
    budget = Budget(warmup=1, rounds=1, seconds=0.0, min_rounds=1)
    held = b"x" * 2**30  # a child starts as a copy of its parent, whose memory must not count
    result = run_cell(Cell(source, "", "vat", budget, {"space": "dense", "hidden": 8}))
    assert len(held) == 2**30
    assert "reason" not in result, result
    one_copy = 400 * 20_000 * 4 / 2**20
    assert one_copy < result["peak_mb"] < 20 * one_copy
    assert result["peak_mb"] < result["process_peak_mb"]
    if sys.platform.startswith("linux"):
        assert result["process_peak_mb"] < 2**10
    assert result["entries"]["a"] == 2 * 4000 + 400


@pytest.mark.slow
def test_a_cell_that_fails_says_why() -> None:
    result = run_cell(Cell("no-such-graph", "", "gcn", Budget()))
    assert "there is no data set or file 'no-such-graph'" in result["reason"]
