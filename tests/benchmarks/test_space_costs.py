from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import cell
import spaces
from bvat.bench.measure import Budget
from bvat.data import save_graph, synthetic_graph
from bvat.graph import DenseMatrix, Graph

FEW = Budget(warmup=1, rounds=1, seconds=0.0, min_rounds=1)


def test_all_spaces_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell, "run_cell", cell.measure)
    monkeypatch.setattr(cell.os, "cpu_count", lambda: 1)
    monkeypatch.setattr(spaces, "METHODS", ("vat",))
    path = tmp_path / "tiny.npz"
    save_graph(synthetic_graph(nodes=120, edges=300, features=80, classes=3, train_per_class=5), path)
    measured, skipped = spaces.measure_spaces(str(path), FEW, FEW)
    row = measured["vat"]
    assert (tuple(row), skipped) == (spaces.SPACES, [])
    assert row["dense"]["over_factored"] == pytest.approx(
        row["dense"]["epoch_ms"] / row["factored"]["epoch_ms"]
    )


def test_a_space_that_does_not_fit_has_a_reason(small: Graph) -> None:
    assert spaces.reason_against(small, "dense") is None
    assert "one copy of a dense" in (spaces.reason_against(small, "dense", 0.0) or "")
    dense = replace(small, features=DenseMatrix(small.features.to_dense()))
    assert spaces.reason_against(dense, "sparse") == "the features are not sparse"
