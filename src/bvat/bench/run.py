"""The whole benchmark: measure a plan and collect the results in one object of plain values."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from bvat.bench.epochs import measure_methods
from bvat.bench.plan import BenchPlan
from bvat.bench.pyg import measure_pyg
from bvat.data import load
from bvat.store.pool import thread_count
from bvat.training.provenance import package_versions
from bvat.training.settings import short_name

PACKAGES = ("torch", "numpy", "scipy", "numba", "torch_geometric")
FORMS = ("edge_index", "sparse")
"""Of torch_geometric's GCN."""
Table = dict[str, dict[str, dict[str, Any]]]
"""What was measured, by data set and row."""

ABOUT = {
    "epoch_ms": "median time of an epoch of bvat train: the training step and the evaluation after it",
    "step_ms": "median time of the training step alone: forward, search, backward, Adam",
    "*_p10": "the 10 % quantile instead of the median: close to that of an idle machine",
    "pyg_gcn_epoch_ms": "the same epoch (step and evaluation) with torch_geometric's GCN, in the faster of "
    "its two forms; pyg has both forms and ours, measured in turn",
    "ratios": "of the medians",
}


def run_bench(plan: BenchPlan, log: Callable[[str], None]) -> dict[str, Any]:
    """Measure everything in ``plan`` with one thread; return what ``bvat bench --json`` prints."""
    started = time.perf_counter()
    methods: Table = {}
    pyg: Table = {}
    skipped: list[str] = []
    with thread_count(1):
        facts = machine()
        for source in plan.datasets:
            name, graph = short_name(source), load(source)
            log(f"{name}: methods {', '.join(plan.methods)}")
            methods[name] = measure_methods(graph, name, plan.methods, plan.method_budget)
            log(f"{name}: GCN of torch_geometric")
            pyg[name] = measure_pyg(graph, name, plan.pyg_budget)
            if "reason" in pyg[name]:
                skipped.append(f"{name}, torch_geometric: {pyg[name]['reason']}")
    settings = {
        name: {method: each.pop("settings") for method, each in row.items()} for name, row in methods.items()
    }
    return {
        **{key: pick(methods, key) for key in ("epoch_ms", "epoch_ms_p10", "step_ms", "step_ms_p10")},
        "pyg_gcn_epoch_ms": {name: _faster(measured) for name, measured in pyg.items()},
        "pyg": pyg,
        "ratios": all_ratios(methods, pyg),
        "skipped": skipped,
        "settings": {"presets": settings, "plan": asdict(plan)},
        "versions": package_versions(PACKAGES),
        "machine": facts,
        "about": ABOUT,
        "seconds": time.perf_counter() - started,
    }


def all_ratios(methods: Table, pyg: Table) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return the ratios of medians by data set and row; None if one of the two was not measured."""
    return {
        "method_over_gcn": _over(methods, "gcn", "epoch_ms"),
        "method_over_gcn_p10": _over(methods, "gcn", "epoch_ms_p10"),
        "method_step_over_gcn_step": _over(methods, "gcn", "step_ms"),
        "pyg_over_ours": _over(pyg, "ours", "epoch_ms", FORMS),
        "pyg_step_over_ours": _over(pyg, "ours", "step_ms", FORMS),
    }


def _over(
    table: Table, base: str, key: str, names: tuple[str, ...] | None = None
) -> dict[str, dict[str, float | None]]:
    """Return ``row[name][key] / row[base][key]`` for every row of a table and the names in it."""
    result: dict[str, dict[str, float | None]] = {}
    for dataset, row in table.items():
        below = row.get(base, {}).get(key)
        result[dataset] = {
            name: measured[key] / below if below and key in measured else None
            for name, measured in row.items()
            if names is None or name in names
        }
    return result


def pick(table: Table, key: str) -> dict[str, dict[str, Any]]:
    """Return one of the measured numbers by data set and row; None where it is missing."""
    return {name: {method: each.get(key) for method, each in row.items()} for name, row in table.items()}


def _faster(measured: dict[str, Any]) -> float | None:
    """Return the epoch time of the faster form of torch_geometric's GCN; None if it was not measured."""
    return min((measured[form]["epoch_ms"] for form in FORMS if form in measured), default=None)


def machine() -> dict[str, Any]:
    """Return what a result depends on besides the code, without names and paths."""
    try:
        memory_gb = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, ValueError, OSError):
        memory_gb = None
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gb": memory_gb,
    }
