"""Figures 1, 3 and 4: the runs they need, and their series beside those of the paper.

A figure is plain data: ``panels`` with ``series``, each with mean and standard deviation over the seeds at
the ``x`` values, and the published values if there are any. Drawing it needs nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bvat.paper.claims import fig1a_claims, named, sweep_claims, trained_claims
from bvat.paper.published import paper, short
from bvat.paper.request import Request
from bvat.paper.robustness import CURVES
from bvat.store.store import RunSpec, RunStore
from bvat.training.statistics import sample

PROBES = ("vat", "sbvat", "obvat")
DROPOUT = {"on": "dropout on, as in the paper", "off": "dropout off"}


def series(
    name: str, label: str, rows: Sequence[Sequence[float]], published: Sequence[float] | None
) -> dict[str, Any]:
    """Return one line of a figure; ``rows`` holds one list per seed, with one entry per x value."""
    columns = [sample(column) for column in zip(*rows, strict=True)]
    return {
        "name": name,
        "label": label,
        "n": len(rows),
        "mean": [column.mean for column in columns],
        "std": [column.std for column in columns],
        "paper": None if published is None else list(published),
    }


def _curves_of(request: Request, store: RunStore, dataset: str, method: str) -> list[Any]:
    """Return the measured curves of a data set and training method, one dict per seed."""
    return [result["curves"] for result in store.results(_fig1_runs(request, dataset, method))]


def _fig1_runs(request: Request, dataset: str, method: str) -> list[RunSpec]:
    settings = request.settings(dataset, method, **paper()["fig1"]["training"][method])
    return [RunSpec(dataset, settings, seed, CURVES) for seed in request.seeds_of(dataset)]


def plan_fig1(request: Request, target: str) -> list[RunSpec]:
    """Return the runs of a part of Figure 1: models trained without and, in b and c, with its method."""
    methods = {"fig1a": ["gcn"], "fig1b": ["gcn", "sbvat"], "fig1c": ["gcn", "obvat"]}[target]
    return [
        run
        for dataset in request.datasets_of(target)
        for method in methods
        for run in _fig1_runs(request, dataset, method)
    ]


def collect_fig1a(request: Request, store: RunStore) -> dict[str, Any]:
    """Figure 1a: R_vadv of the three methods on a GCN trained without them."""
    panels = []
    for dataset in request.datasets_of("fig1a"):
        curves = _curves_of(request, store, dataset, "gcn")
        published = paper()["fig1"]["a"] if dataset in paper()["fig1"]["datasets"] else {}
        for dropout, title in DROPOUT.items():
            lines = [
                series(
                    method,
                    short(method),
                    [curve[dropout][method] for curve in curves],
                    published.get(method) if dropout == "on" else None,
                )
                for method in request.methods_of(PROBES)
            ]
            panels.append(_panel(dataset, title, lines, dropout=dropout))
    return _figure(
        "fig1a",
        "Figure 1a: how adversarial the perturbations are, on a GCN trained without them",
        "steps T of the search",
        "R_vadv",
        paper()["fig1"]["steps"],
        panels,
        [claim for panel in panels for claim in fig1a_claims(panel)],
    )


def _collect_trained(request: Request, store: RunStore, target: str, method: str) -> dict[str, Any]:
    panels = []
    for dataset in request.datasets_of(target):
        published = paper()["fig1"][target[-1]] if dataset in paper()["fig1"]["datasets"] else {}
        for dropout, title in DROPOUT.items():
            lines = []
            for trained, word in (("gcn", "without"), (method, "with")):
                rows = [curve[dropout][method] for curve in _curves_of(request, store, dataset, trained)]
                lines.append(
                    series(
                        trained,
                        f"trained {word} {short(method)}",
                        rows,
                        published.get(word) if dropout == "on" else None,
                    )
                )
            panels.append(_panel(dataset, title, lines, dropout=dropout))
    return _figure(
        target,
        f"Figure {target[3:]}: {short(method)}'s R_vadv on models trained without and with {short(method)}",
        "steps T of the search",
        "R_vadv",
        paper()["fig1"]["steps"],
        panels,
        [claim for panel in panels for claim in trained_claims(panel, short(method))],
    )


def collect_fig1b(request: Request, store: RunStore) -> dict[str, Any]:
    """Figure 1b: S-BVAT's R_vadv on models trained without and with it."""
    return _collect_trained(request, store, "fig1b", "sbvat")


def collect_fig1c(request: Request, store: RunStore) -> dict[str, Any]:
    """Figure 1c: O-BVAT's R_vadv on models trained without and with it."""
    return _collect_trained(request, store, "fig1c", "obvat")


def _sweep(
    request: Request, dataset: str, method: str, varied: str, fixed: dict[str, Any]
) -> list[list[RunSpec]]:
    """Return the runs over the values of a setting, one list per seed; the rest comes from the preset."""
    figure = paper()["fig3" if varied == "epsilon" else "fig4"]
    return [
        [
            RunSpec(dataset, request.settings(dataset, method, **{**fixed, varied: value}), seed)
            for value in figure[varied]
        ]
        for seed in request.seeds_of(dataset)
    ]


NORMS = {
    "row": "epsilon per row, as in the authors' code",
    "field": "epsilon per receptive field, as in the text",
}


def _fig3_sweeps(request: Request) -> dict[tuple[str, str], list[list[RunSpec]]]:
    fixed = paper()["fig3"]["settings"]
    return {
        (dataset, norm): _sweep(
            request, dataset, "sbvat", "epsilon", {**fixed.get(dataset, {}), "norm": norm}
        )
        for dataset in request.datasets_of("fig3")
        for norm in NORMS
    }


def _fig4_sweeps(request: Request) -> dict[tuple[str, str], list[list[RunSpec]]]:
    fixed = paper()["fig4"]["settings"]
    return {
        (dataset, method): _sweep(request, dataset, method, "alpha", fixed[method])
        for dataset in request.datasets_of("fig4")
        for method in request.methods_of(("sbvat", "obvat"))
    }


def plan_fig3(request: Request) -> list[RunSpec]:
    """Return the runs of Figure 3."""
    return [run for rows in _fig3_sweeps(request).values() for row in rows for run in row]


def plan_fig4(request: Request) -> list[RunSpec]:
    """Return the runs of Figure 4."""
    return [run for rows in _fig4_sweeps(request).values() for row in rows for run in row]


def _validation(
    store: RunStore, rows: list[list[RunSpec]], name: str, label: str, published: Any
) -> dict[str, Any]:
    values = [[result["last"]["val"] for result in store.results(row)] for row in rows]
    percent = None if published is None else [100 * value for value in published]
    return series(name, label, values, percent)


def collect_fig3(request: Request, store: RunStore) -> dict[str, Any]:
    """Figure 3: validation accuracy of S-BVAT against epsilon."""
    published = paper()["fig3"]["accuracy"]
    sweeps = _fig3_sweeps(request)
    panels = []
    for dataset in request.datasets_of("fig3"):
        theirs = published.get(dataset)
        row = _validation(store, sweeps[dataset, "row"], "sbvat", NORMS["row"], theirs)
        field = _validation(store, sweeps[dataset, "field"], "field", NORMS["field"], theirs)
        # the published points are drawn once, and both lines are compared with them
        panels.append(_panel(dataset, "", [row, {**field, "paper": None, "compare": field["paper"]}]))
    x = paper()["fig3"]["epsilon"]
    title = "Figure 3: validation accuracy of S-BVAT against epsilon"
    claims = [claim for panel in panels for claim in sweep_claims(panel, x, "epsilon")]
    return _figure("fig3", title, "epsilon", "validation accuracy (%)", x, panels, claims)


def collect_fig4(request: Request, store: RunStore) -> dict[str, Any]:
    """Figure 4: validation accuracy of S-BVAT and O-BVAT against alpha."""
    published = paper()["fig4"]["accuracy"]
    panels = []
    sweeps = _fig4_sweeps(request)
    for dataset in request.datasets_of("fig4"):
        shown = dataset in paper()["fig4"]["datasets"]
        lines = [
            _validation(store, rows, method, short(method), published[method] if shown else None)
            for (of, method), rows in sweeps.items()
            if of == dataset
        ]
        panels.append(_panel(dataset, "", lines))
    x = paper()["fig4"]["alpha"]
    title = "Figure 4: validation accuracy against alpha, the weight of the entropy"
    claims = [claim for panel in panels for claim in sweep_claims(panel, x, "alpha")]
    return _figure("fig4", title, "alpha", "validation accuracy (%)", x, panels, claims)


def _panel(dataset: str, title: str, lines: list[dict[str, Any]], **rest: Any) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "title": f"{named(dataset)}, {title}" if title else named(dataset),
        "series": lines,
        **rest,
    }


def _figure(
    target: str, title: str, x: str, y: str, values: Sequence[float], panels: list[Any], claims: list[Any]
) -> dict[str, Any]:
    return {
        "target": target,
        "title": title,
        "x": {"label": x, "values": list(values)},
        "y": {"label": y},
        "panels": panels,
        "claims": claims,
    }
