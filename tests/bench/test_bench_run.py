from __future__ import annotations

import json
from pathlib import Path

import pytest

from bvat.bench.measure import ROWS, Budget, run_bench, settings_of
from bvat.data import load
from bvat.perturb.methods import ON_GCN
from bvat.training.loop import run_epoch
from bvat.training.settings import preset
from bvat.training.state import start_training

FEW = Budget(warmup=1, rounds=2, seconds=0.0, min_rounds=2)


def test_everything_is_there_and_agrees(graph_file: Path) -> None:
    results = run_bench([str(graph_file)], FEW, lambda _: None)
    assert set(results) == {"epoch_ms", "step_ms", "over_gcn", "settings", "versions", "machine"}
    assert json.loads(json.dumps(results, allow_nan=False))["epoch_ms"]
    epoch = results["epoch_ms"]["tiny"]
    assert tuple(epoch) == tuple(ROWS)
    for method in ROWS:
        assert 0 < results["step_ms"]["tiny"][method] <= epoch[method]
        assert results["over_gcn"]["tiny"][method] == pytest.approx(epoch[method] / epoch["gcn"])
        assert results["settings"]["tiny"][method]["hidden"] == settings_of("tiny", method).hidden


def test_rows_are_the_methods_and_two_variants() -> None:
    methods = [name for name in ON_GCN if name != "grand"]
    assert [*ROWS] == [*methods, "obvat-fast", "random-propagation"]
    assert settings_of("cora", "vat") == preset("cora", "vat")
    assert (settings_of("cora", "obvat").search, settings_of("cora", "obvat").steps) == ("adam", 10)


def test_the_regulariser_acts_from_the_first_epoch_on_any_graph(graph_file: Path) -> None:
    state = start_training(load(str(graph_file)), settings_of("tiny", "vat"))
    assert run_epoch(state)["r_vadv"] > 0


def test_the_fast_entry_is_obvat_with_the_fast_search() -> None:
    settings = settings_of("cora", "obvat-fast")
    assert (settings.method, settings.search) == ("obvat", "fast")
    assert settings.steps < preset("cora", "obvat").steps
