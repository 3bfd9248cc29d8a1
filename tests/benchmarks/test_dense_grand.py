"""GRAND in plain torch, and the command that compares random propagation with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import bvat
import dense_grand
import grand
from bvat.errors import SettingsError
from bvat.training.settings import preset


@pytest.mark.parametrize("dataset", ["cora", pytest.param("pubmed", marks=pytest.mark.slow)])
def test_the_dense_implementation_learns_and_repeats(small: bvat.Graph, dataset: str) -> None:
    settings = replace(dense_grand.PUBLISHED[dataset], lr=0.1, patience=30, epochs=60)
    first, again = (dense_grand.DenseGrand(small, settings, 1).train() for _ in range(2))
    assert first["test"] > 60  # three classes
    assert first["epoch"] <= first["epochs"] <= 60
    times = ("seconds", "cpu_seconds")
    assert {k: v for k, v in first.items() if k not in times} == {
        k: v for k, v in again.items() if k not in times
    }


def test_dense_propagation_is_the_mean_of_powers(small: bvat.Graph) -> None:
    trainer = dense_grand.DenseGrand(small, dense_grand.PUBLISHED["citeseer"], 0)
    a, x = small.propagation.to_dense(), small.features.to_dense()
    torch.testing.assert_close(trainer.propagate(x), (x + a @ x + a @ a @ x) / 3)


def test_both_are_trained_and_finished_seeds_are_kept(
    small: bvat.Graph, tmp_path: Path, monkeypatch: Any
) -> None:
    quick = replace(dense_grand.PUBLISHED["cora"], epochs=3)
    monkeypatch.setitem(dense_grand.PUBLISHED, "cora", quick)
    monkeypatch.setattr(grand, "load", lambda name: small)
    monkeypatch.setattr(grand, "preset", lambda *a, **k: preset(*a, **{**k, "epochs": 3}))
    path = tmp_path / "grand.json"
    one = grand.compare_grand("cora", 1, path)
    two = grand.compare_grand("cora", 2, path)
    assert two["rows"]["0"] == one["rows"]["0"]
    assert set(two["rows"]["1"]) == {"ours", "dense"}
    assert two["summary"]["ours"]["test"]["n"] == 2
    assert two["summary"]["ours_over_dense"] > 0
    with pytest.raises(SettingsError, match="no settings for 'nell'"):
        grand.compare_grand("nell", 1, path)
