from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bvat.bench import cell, epochs
from bvat.bench.cell import Cell, run_cell
from bvat.bench.plan import FULL, GCN_ROWS, QUICK, ROWS, BenchPlan, Budget, settings_of
from bvat.bench.run import run_bench
from bvat.data import load
from bvat.engine.cpu import CompiledEngine
from bvat.engine.tensor import TensorEngine
from bvat.graph import Graph
from bvat.perturb.methods import ON_GCN
from bvat.report.bench_files import all_tables
from bvat.training.loop import run_epoch
from bvat.training.settings import preset
from bvat.training.state import start_training

KEYS = {
    "epoch_ms", "epoch_ms_p10", "step_ms", "step_ms_p10", "peak_mb", "process_peak_mb", "pyg_gcn_epoch_ms",
    "pyg", "compiled", "ratios", "skipped", "settings", "versions", "machine", "about", "seconds",
}  # fmt: skip


@pytest.fixture
def results(plan: BenchPlan, _cells_here: None) -> dict[str, Any]:
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
    # memory
    peak = results["peak_mb"]["tiny"]
    assert tuple(peak) == tuple(ROWS)
    for method in ROWS:
        assert 0 <= peak[method] < results["process_peak_mb"]["tiny"][method]
    # compiled kernels
    rows = results["compiled"]
    assert [(row["method"], row["hidden"]) for row in rows] == [(m, w) for m in GCN_ROWS for w in (8, 16)]
    for row in rows:
        assert row["dataset"] == "tiny"
        assert row["ratio"] == pytest.approx(row["plain_ms"] / row["compiled_ms"])
        assert row["cpu_ratio"] == pytest.approx(row["plain_cpu_ms"] / row["compiled_cpu_ms"])
    # all of it fits in tables
    names = [table.name for table in all_tables(results)]
    assert [name for name in names if name != "pyg"] == ["methods", "memory", "compiled"]
    assert all(len(row) == len(table.header) for table in all_tables(results) for row in table.rows)


def test_a_process_that_fails_is_skipped_with_the_reason(
    plan: BenchPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell, "run_cell", lambda _: {"reason": "killed"})
    results = run_bench(replace(plan, methods=("gcn", "vat"), compiled_datasets=()), lambda _: None)
    assert results["peak_mb"]["tiny"] == {"gcn": None, "vat": None}
    assert results["ratios"]["memory_over_gcn"]["tiny"] == {"gcn": None, "vat": None}
    assert "tiny, memory of vat: killed" in results["skipped"]


def test_plain_epochs_run_without_compiled_kernels(graph_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engines: list[type] = []

    def epoch_action(graph: Graph, _: Any) -> Callable[[], float]:
        engines.append(type(graph.engine))
        assert type(graph.propagation.engine) is type(graph.adjacency.engine) is engines[-1]
        return lambda: float(sum(range(10_000)))  # takes some CPU time

    monkeypatch.setattr(epochs, "epoch_action", epoch_action)
    budget = Budget(warmup=1, rounds=1, seconds=0.0, min_rounds=1)
    epochs.measure_compiled(load(str(graph_file)), "tiny", ["vat"], [8], budget)
    assert engines == [TensorEngine, CompiledEngine]


def test_quick_is_a_part_of_the_full_benchmark() -> None:
    assert (QUICK.compiled_datasets, len(QUICK.compiled_widths)) == (("cora",), 2)
    assert FULL.compiled_widths == (16, 32, 64, 128, 256)
    assert (QUICK.datasets, FULL.datasets) == (("cora", "pubmed"), ("cora", "citeseer", "pubmed", "nell"))


def test_rows_are_the_methods_and_two_variants() -> None:
    methods = [name for name in ON_GCN if name != "grand"]
    assert [*ROWS] == [*methods, "obvat-fast", "random-propagation"]
    assert len({ROWS[name].colour for name in GCN_ROWS}) == len(GCN_ROWS)  # one chart shows all of them
    assert settings_of("cora", "vat") == preset("cora", "vat")
    assert (settings_of("cora", "obvat").search, settings_of("cora", "obvat").steps) == ("adam", 10)


def test_the_regulariser_acts_from_the_first_epoch_on_any_graph(graph_file: Path) -> None:
    state = start_training(load(str(graph_file)), settings_of("tiny", "vat"))
    assert run_epoch(state)["r_vadv"] > 0


def test_the_fast_entry_is_obvat_with_the_fast_search() -> None:
    settings = settings_of("cora", "obvat-fast")
    assert (settings.method, settings.search) == ("obvat", "fast")
    assert settings.steps < preset("cora", "obvat").steps


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
