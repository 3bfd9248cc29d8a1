from __future__ import annotations

from pathlib import Path

import pytest

import kernels
from bvat.bench.measure import Budget
from bvat.data import save_graph, synthetic_graph

FEW = Budget(warmup=1, rounds=1, seconds=0.0, min_rounds=1)


def test_every_row_has_both_times_and_their_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "ROWS", {"GAT": kernels.ROWS["GAT"]})
    path = tmp_path / "tiny.npz"
    save_graph(synthetic_graph(nodes=120, edges=300, features=80, classes=3, train_per_class=5), path)
    (row,) = kernels.measure_kernels(str(path), (16,), FEW)
    assert (row["row"], row["hidden"]) == ("GAT", 16)
    assert row["ratio"] == pytest.approx(row["plain_ms"] / row["compiled_ms"])
    assert kernels.table([row]).splitlines()[2].startswith("| GAT | 16 | ")
