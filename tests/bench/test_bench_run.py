from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bvat.bench.plan import FULL, QUICK, ROWS, BenchPlan, settings_of
from bvat.bench.run import run_bench
from bvat.data import load
from bvat.perturb.methods import ON_GCN
from bvat.training.loop import run_epoch
from bvat.training.settings import preset
from bvat.training.state import start_training

KEYS = {
    "epoch_ms", "epoch_ms_p10", "step_ms", "step_ms_p10", "pyg_gcn_epoch_ms", "pyg", "ratios",
     "skipped", "settings", "versions", "machine", "about", "seconds",
}  # fmt: skip


@pytest.fixture
def results(plan: BenchPlan) -> dict[str, Any]:
    return run_bench(plan, lambda _: None)


def test_everything_is_there_and_agrees(results: dict[str, Any]) -> None:
    assert set(results) == KEYS
    assert json.loads(json.dumps(results, allow_nan=False))["epoch_ms"]
    # methods
    assert tuple(results["epoch_ms"]["tiny"]) == tuple(ROWS)
    for method in ROWS:
        epoch = results["epoch_ms"]["tiny"]
        assert 0 < results["step_ms_p10"]["tiny"][method] <= epoch[method]
        assert results["ratios"]["method_over_gcn"]["tiny"][method] == pytest.approx(
            epoch[method] / epoch["gcn"]
        )
        assert results["settings"]["presets"]["tiny"][method]["hidden"] == settings_of("tiny", method).hidden
    # torch_geometric
    pyg = results["pyg"]["tiny"]
    if "reason" not in pyg:
        forms = [pyg[form]["epoch_ms"] for form in ("edge_index", "sparse")]
        assert results["pyg_gcn_epoch_ms"]["tiny"] == min(forms)
        over = results["ratios"]["pyg_over_ours"]["tiny"]
        assert over["edge_index"] == pytest.approx(forms[0] / pyg["ours"]["epoch_ms"])


def test_quick_is_a_part_of_the_full_benchmark() -> None:
    assert (QUICK.datasets, FULL.datasets) == (("cora", "pubmed"), ("cora", "citeseer", "pubmed", "nell"))


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
