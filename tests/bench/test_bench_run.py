from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bvat.bench import compiled
from bvat.bench.cell import Cell, run_cell
from bvat.bench.plan import FULL, GCN_ROWS, QUICK, ROWS, SPACES, Budget, Plan
from bvat.bench.run import run_bench
from bvat.data import load
from bvat.report.bench_tables import all_tables
from bvat.training.settings import Settings

KEYS = {
    "epoch_ms", "epoch_ms_p10", "step_ms", "step_ms_p10", "pyg_gcn_epoch_ms", "pyg", "space_epoch_ms",
    "space_epoch_ms_p10", "space_step_ms", "space_peak_mb", "space_process_peak_mb", "growth",
    "search", "compiled", "limit",
    "ratios", "skipped", "settings", "versions", "machine", "about", "seconds",
}  # fmt: skip


@pytest.fixture
def results(plan: Plan, _cells_here: None) -> dict[str, Any]:
    return run_bench(plan, lambda _: None)


def test_everything_is_there_and_agrees(results: dict[str, Any], plan: Plan) -> None:
    assert set(results) == KEYS
    assert json.loads(json.dumps(results, allow_nan=False))["growth"]["points"]
    # methods
    assert tuple(results["epoch_ms"]["tiny"]) == tuple(ROWS)
    for method in ROWS:
        epoch = results["epoch_ms"]["tiny"]
        assert 0 < results["step_ms_p10"]["tiny"][method] <= epoch[method]
        assert results["ratios"]["method_over_gcn"]["tiny"][method] == pytest.approx(
            epoch[method] / epoch["gcn"]
        )
        Settings(**results["settings"]["presets"]["tiny"][method])
    # torch_geometric
    pyg = results["pyg"]["tiny"]
    if "reason" not in pyg:
        forms = [pyg[form]["epoch_ms"] for form in ("edge_index", "sparse")]
        assert results["pyg_gcn_epoch_ms"]["tiny"] == min(forms)
        over = results["ratios"]["pyg_over_ours"]["tiny"]
        assert over["edge_index"] == pytest.approx(forms[0] / pyg["ours"]["epoch_ms"])
    # spaces
    for method in plan.space_methods:
        row = results["space_epoch_ms"]["tiny"][method]
        assert tuple(row) == SPACES
        assert tuple(results["space_peak_mb"]["tiny"][method]) == SPACES
        assert results["ratios"]["space_over_factored"]["tiny"][method]["dense"] == pytest.approx(
            row["dense"] / row["factored"]
        )
    # compiled kernels
    rows = results["compiled"]
    assert [(row["method"], row["hidden"]) for row in rows] == [(m, w) for m in GCN_ROWS for w in (8, 16)]
    for row in rows:
        assert row["dataset"] == "tiny"
        assert row["ratio"] == pytest.approx(row["plain_ms"] / row["compiled_ms"])
        assert row["cpu_ratio"] == pytest.approx(row["plain_cpu_ms"] / row["compiled_cpu_ms"])
    # growth
    growth = results["growth"]
    assert growth["exponent"] == growth["exponents"]["edges"]["obvat"]["epoch_ms"]
    assert {point["axis"] for point in growth["points"]} == {"edges", "features", "hidden"}
    assert all(p["sizes"]["nnz_a"] == 2 * p["edges"] + p["nodes"] for p in growth["points"])
    # limit
    limit = results["limit"]["datasets"]["tiny"]["methods"]
    assert set(limit) == {"gcn", "consistency", "random", "vat", "obvat", "obvat-fast"}
    for method, row in limit.items():
        assert row["epoch_ms"] == results["epoch_ms"]["tiny"][method]
        assert row["fraction"] == pytest.approx(row["limit_ms"] / row["epoch_ms"])
    assert limit["obvat"]["bytes"] > limit["vat"]["bytes"] > limit["gcn"]["bytes"]
    assert {row["edges"] for row in results["limit"]["growth"]} == {1600, 3200, 6400}
    # all of it fits in tables
    names = [table.name for table in all_tables(results)]
    assert names[-4:] == ["compiled", "growth", "exponents", "limit"]
    assert all(len(row) == len(table.header) for table in all_tables(results) for row in table.rows)


@pytest.mark.usefixtures("_cells_here")
def test_a_dense_matrix_that_does_not_fit_is_skipped_with_the_reason(plan: Plan) -> None:
    small = replace(plan, growth=None, limit=False, methods=("gcn",), max_dense_gb=0.0)
    results = run_bench(replace(small, space_methods=("vat",)), lambda _: None)
    assert results["space_epoch_ms"]["tiny"]["vat"]["dense"] is None
    assert results["space_peak_mb"]["tiny"]["vat"]["dense"] is None
    assert results["ratios"]["space_over_factored"]["tiny"]["vat"]["dense"] is None
    assert any("space dense: one copy" in line for line in results["skipped"])
    assert results["growth"] is None
    assert results["limit"] is None


def test_plain_epochs_run_without_compiled_kernels(graph_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside: list[str] = []
    seen: list[tuple[list[str], list[str]]] = []

    @contextmanager
    def plain() -> Iterator[None]:
        inside.append("plain")
        yield
        inside.pop()

    def epoch_action(*_: Any) -> Callable[[], float]:
        built = list(inside)

        def epoch() -> float:
            seen.append((built, list(inside)))
            return float(sum(range(10_000)))  # takes some CPU time

        return epoch

    monkeypatch.setattr(compiled, "plain", plain)
    monkeypatch.setattr(compiled, "epoch_action", epoch_action)
    budget = Budget(warmup=1, rounds=1, seconds=0.0, min_rounds=1)
    compiled.measure_compiled(load(str(graph_file)), "tiny", ["vat"], [8], budget)
    assert seen == [(["plain"], ["plain"]), ([], [])] * 2


def test_quick_is_cora_and_pubmed_without_growth_and_limit() -> None:
    assert (QUICK.compiled_datasets, len(QUICK.compiled_widths)) == (("cora",), 2)
    assert FULL.compiled_widths == (16, 32, 64, 128, 256)
    assert (QUICK.datasets, QUICK.growth, QUICK.limit) == (("cora", "pubmed"), None, False)
    assert FULL.datasets == ("cora", "citeseer", "pubmed", "nell")
    assert FULL.growth is not None
    assert FULL.limit


@pytest.mark.slow
def test_a_cell_runs_in_a_process_of_its_own() -> None:
    source = {"nodes": 400, "edges": 4000, "features": 20_000, "classes": 4}
    settings = Settings(method="vat", space="dense", hidden=8).as_dict()
    held = b"x" * 2**30  # a child starts as a copy of its parent, whose memory must not count
    result = run_cell(Cell(source, settings, Budget(warmup=1, rounds=1, seconds=0.0, min_rounds=1)))
    assert len(held) == 2**30
    assert "reason" not in result, result
    one_copy = 400 * 20_000 * 4 / 2**20
    assert one_copy < result["peak_mb"] < 20 * one_copy
    assert result["peak_mb"] < result["process_peak_mb"]
    if sys.platform.startswith("linux"):
        assert result["process_peak_mb"] < 2**10
    assert result["settings"] == settings
    assert result["sizes"]["features"] == 20_000


@pytest.mark.slow
def test_a_cell_that_fails_says_why() -> None:
    settings = Settings(method="none").as_dict()
    result = run_cell(Cell("no-such-graph", settings, Budget()))
    assert "there is no data set or file 'no-such-graph'" in result["reason"]
