"""The whole benchmark: measure a plan and collect the results in one object of plain values."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bvat.bench.compiled import measure_compiled
from bvat.bench.cost import Sizes
from bvat.bench.epochs import settings_of
from bvat.bench.growth import measure_growth
from bvat.bench.limit import limit_of, machine_rates, measure_limit
from bvat.bench.machine import PACKAGES, machine
from bvat.bench.method_times import measure_methods
from bvat.bench.plan import GCN_ROWS, Plan
from bvat.bench.pyg import measure_pyg
from bvat.bench.ratios import all_ratios
from bvat.bench.search import measure_search
from bvat.bench.spaces import measure_spaces
from bvat.data import load
from bvat.store.pool import thread_count
from bvat.training.provenance import package_versions
from bvat.training.settings import Settings, short_name

ABOUT = {
    "epoch_ms": "median time of an epoch of bvat train: the training step and the evaluation after it",
    "step_ms": "median time of the training step alone: forward, search, backward, Adam",
    "*_p10": "the 10 % quantile instead of the median: close to that of an idle machine",
    "pyg_gcn_epoch_ms": "the same epoch (step and evaluation) with torch_geometric's GCN, in the faster of "
    "its two forms; pyg has both forms and ours, measured in turn",
    "space_peak_mb": "MiB: peak memory during training minus what the process held before it read the graph",
    "space_process_peak_mb": "MiB: peak memory of the whole process, including libraries and reading",
    "search": "R_vadv of ten cold steps of Adam and of one warm full step (fast) at the same mean row norm, "
    "every 20 epochs of training with O-BVAT",
    "compiled": "plain / compiled: epoch time without and with compiled kernels, measured in turn in one "
    "process; ratio is of wall times, cpu_ratio of CPU times",
    "growth.exponent": "of O-BVAT's epoch_ms against edges; growth.exponents has the others",
    "limit": "bytes and flops by the formulas of bvat.bench.cost at the measured rates; "
    "fraction = limit_ms / epoch_ms",
    "ratios": "of the medians",
}


def run_bench(plan: Plan, log: Callable[[str], None]) -> dict[str, Any]:
    """Measure everything in ``plan`` with one thread; ``log`` is called with what is being measured.

    Returns:
        the object that ``bvat bench --json`` prints; ``ABOUT`` explains its numbers.
    """
    started = time.perf_counter()
    with thread_count(1):
        facts = machine()
        methods: dict[str, Any] = {}
        pyg: dict[str, Any] = {}
        spaces: dict[str, Any] = {}
        limits: dict[str, Any] = {}
        searches: dict[str, Any] = {}
        compiled: list[dict[str, Any]] = []
        skipped: list[str] = []
        rates = machine_rates() if plan.limit else {}
        for source in plan.datasets:
            name = short_name(source)
            graph = load(source)
            log(f"{name}: methods {', '.join(plan.methods)}")
            methods[name] = measure_methods(graph, name, plan.methods, plan.method_budget)
            if plan.limit:
                log(f"{name}: sparse products alone")
                limits[name] = measure_limit(graph, methods[name], rates, plan.method_budget)
            log(f"{name}: GCN of torch_geometric")
            pyg[name] = measure_pyg(graph, name, plan.pyg_budget)
            if "reason" in pyg[name]:
                skipped.append(f"{name}, torch_geometric: {pyg[name]['reason']}")
            spaces[name], without = measure_spaces(graph, source, name, plan, log)
            skipped += without
            if name in plan.search_datasets:
                log(f"{name}: strength of the fast search")
                searches[name] = measure_search(graph, settings_of(name, "obvat"))
            if name in plan.compiled_datasets:
                log(
                    f"{name}: plain and compiled epochs at widths {', '.join(map(str, plan.compiled_widths))}"
                )
                of_gcn = [method for method in plan.methods if method in GCN_ROWS]
                compiled += measure_compiled(graph, name, of_gcn, plan.compiled_widths, plan.compiled_budget)
        growth = None
        if plan.growth is not None:
            growth, failed = measure_growth(plan.growth, log)
            skipped += failed
        limit = (
            {"rates": rates, "datasets": limits, "growth": _of_growth(growth, rates)} if plan.limit else None
        )
    settings = {
        name: {method: each.pop("settings") for method, each in measured.items()}
        for name, measured in methods.items()
    }
    return {
        **_by_key(methods, ("epoch_ms", "epoch_ms_p10", "step_ms", "step_ms_p10")),
        "pyg_gcn_epoch_ms": {name: _faster(measured) for name, measured in pyg.items()},
        "pyg": pyg,
        **_by_space(spaces, ("epoch_ms", "epoch_ms_p10", "step_ms", "peak_mb", "process_peak_mb")),
        "search": searches,
        "compiled": compiled,
        "growth": growth,
        "limit": limit,
        "ratios": all_ratios(methods, pyg, spaces),
        "skipped": skipped,
        "settings": {"presets": settings, "plan": plan.as_dict()},
        "versions": package_versions(PACKAGES),
        "machine": facts,
        "about": ABOUT,
        "seconds": time.perf_counter() - started,
    }


def _faster(measured: dict[str, Any]) -> float | None:
    """Return the epoch time of the faster form of torch_geometric's GCN; None if it was not measured."""
    forms = [measured[form]["epoch_ms"] for form in ("edge_index", "sparse") if form in measured]
    return min(forms) if forms else None


def _by_key(methods: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {
        key: {name: {m: each[key] for m, each in measured.items()} for name, measured in methods.items()}
        for key in keys
    }


def _by_space(spaces: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {
        f"space_{key}": {
            name: {
                method: {space: each and each[key] for space, each in of_method.items()}
                for method, of_method in measured.items()
            }
            for name, measured in spaces.items()
        }
        for key in keys
    }


def _of_growth(growth: dict[str, Any] | None, rates: dict[str, float]) -> list[dict[str, Any]]:
    """Compare the points along the edges with the limit too: the large ones do not fit into any cache."""
    rows = []
    for point in growth["points"] if growth else []:
        if point["axis"] != "edges":
            continue
        row = limit_of(Sizes(**point["sizes"]), Settings(**point["settings"]), point["epoch_ms"], rates)
        if row is not None:
            rows.append({"method": point["method"], "nodes": point["nodes"], "edges": point["edges"], **row})
    return rows
