"""Table 2: test accuracy of all methods, compared with the published numbers."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import Any

from bvat.errors import SettingsError
from bvat.paper.request import Published, Request, in_order, named, paper, table2
from bvat.perturb.methods import ON_GCN
from bvat.store.store import RunSpec, RunStore
from bvat.training.provenance import about_graph
from bvat.training.statistics import Sample, sample
from bvat.tuning.variants import Variant

SELECTIONS = ("last", "best")
"""The last epoch, and the one with the best validation accuracy."""


def plan(request: Request, target: str = "table2") -> list[RunSpec]:
    return [
        RunSpec(dataset, request.settings(dataset, method), seed)
        for dataset in request.datasets_of(target)
        for method in request.rows_of(dataset)
        for seed in request.seeds_for(dataset, method)
    ]


def collect(request: Request, store: RunStore, target: str = "table2") -> dict[str, Any]:
    datasets = request.datasets_of(target)
    methods = list(dict.fromkeys(method for dataset in datasets for method in request.rows_of(dataset)))
    cells = {
        method: {
            dataset: _cell(request, store, dataset, method)
            for dataset in datasets
            if method in request.rows_of(dataset)
        }
        for method in methods
    }
    return {
        "target": target,
        "title": "Table 2: test accuracy (%)",
        "datasets": {
            dataset: {"title": named(dataset), **about_graph(store.graphs[dataset])} for dataset in datasets
        },
        "methods": {method: Variant.parse(method).title for method in methods},
        "about": {method: paper()["source"].get(method, {}) for method in methods},
        "comparable": paper()["comparable"],
        "cells": cells,
    }


def merged(new: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return a table with the rows of an earlier one that the new one does not have.

    Rows made by another command or version than the table record their own.
    """
    how = {name: before[name] for name in ("command", "versions", "sources") if name in before}
    kept = [name for name, row in before["cells"].items() if row.keys() - new["cells"].get(name, {}).keys()]
    names = in_order([*before["cells"], *new["cells"]])
    return {
        **new,
        "datasets": before["datasets"] | new["datasets"],
        "methods": {name: Variant.parse(name).title for name in names},
        "about": {name: paper()["source"].get(name, {}) for name in names},
        "cells": _joined(before["cells"], new["cells"], names),
        "settings": _joined(before["settings"], new["settings"], before["settings"] | new["settings"]),
        "seeds": new["seeds"] | before["seeds"],  # of most rows
        "rows": {name: before.get("rows", {}).get(name, how) for name in kept},
    }


def _joined(before: dict[str, Any], new: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: before.get(name, {}) | new.get(name, {}) for name in names}


def _cell(request: Request, store: RunStore, dataset: str, method: str) -> dict[str, Any]:
    settings = request.settings(dataset, method)
    runs = [RunSpec(dataset, settings, seed) for seed in request.seeds_for(dataset, method)]
    results = store.results(runs)
    published = table2(method, dataset)
    cell: dict[str, Any] = {
        "paper": None if published is None else published._asdict(),
        "seeds": [run.seed for run in runs],
    }
    for selection in SELECTIONS:
        tests, vals = ([result[selection][name] for result in results] for name in ("test", "val"))
        if None in tests:
            raise SettingsError(f"{dataset} has no test nodes: Table 2 needs some")
        found = sample(tests)
        cell[selection] = {**found.as_dict(), "values": tests} | _compared(found, published, method)
        if None not in vals:
            cell[selection]["val"] = sample(vals).as_dict()
    if all("fit" in result for result in results):
        cell["unscored_test"] = fmean(result["fit"]["unscored_test"] for result in results)
    return cell


def _compared(found: Sample, published: Published | None, method: str) -> dict[str, Any]:
    if published is None:
        return {}
    difference = {"difference": found.mean - published.mean}
    judged = published.std is not None or method in ON_GCN
    return difference | ({"verdict": verdict(found, published)} if judged else {})


def verdict(found: Sample, published: Published) -> str:
    """Return whether a mean is above, within or below one standard deviation of the published mean.

    If the paper gives no standard deviation (GCN), that of the seeds is used.
    """
    width = published.std if published.std is not None else found.std
    difference = found.mean - published.mean
    if abs(difference) <= width + 1e-9:
        return "within"
    return "above" if difference > 0 else "below"
