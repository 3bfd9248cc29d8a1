"""Figures 1, 3 and 4: the runs they need, and their series beside those of the paper.

A figure is plain data: ``panels`` with ``series``, each with mean and standard deviation over the seeds at
the ``x`` values, and the published values if there are any. Drawing it needs nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from bvat.paper.published import named, paper, short
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


class Curve(NamedTuple):
    """A line of Figure 1: R_vadv of the search of ``probe`` on models trained by ``trained``."""

    published: str
    label: str
    trained: str
    probe: str


FIG1 = {"fig1a": None, "fig1b": "sbvat", "fig1c": "obvat"}
"""The parts of Figure 1, and the method with which b and c train."""


def _fig1_runs(request: Request, dataset: str, method: str) -> list[RunSpec]:
    settings = request.settings(dataset, method, **paper()["fig1"]["training"][method])
    return [RunSpec(dataset, settings, seed, CURVES) for seed in request.seeds_of(dataset)]


def plan_fig1(request: Request, target: str) -> list[RunSpec]:
    """Return the runs of a part of Figure 1: models trained without and, in b and c, with its method."""
    methods = ["gcn", *([FIG1[target]] if FIG1[target] else [])]
    return [
        run
        for dataset in request.datasets_of(target)
        for method in methods
        for run in _fig1_runs(request, dataset, str(method))
    ]


def collect_fig1(request: Request, store: RunStore, target: str) -> dict[str, Any]:
    """Return a part of Figure 1.

    1a is R_vadv of the three methods on a GCN trained without them; 1b and 1c are R_vadv of S-BVAT and O-BVAT
    on models trained without and with the method.
    """
    title, lines = _fig1_lines(request, target)
    panels = []
    for dataset in request.datasets_of(target):
        published = paper()["fig1"][target[-1]] if dataset in paper()["fig1"]["datasets"] else {}
        curves = {
            trained: [result["curves"] for result in store.results(_fig1_runs(request, dataset, trained))]
            for trained in dict.fromkeys(line.trained for line in lines)
        }
        for dropout, about in DROPOUT.items():
            shown = [
                series(
                    line.trained if FIG1[target] else line.probe,
                    line.label,
                    [curve[dropout][line.probe] for curve in curves[line.trained]],
                    published.get(line.published) if dropout == "on" else None,
                )
                for line in lines
            ]
            panels.append(_panel(dataset, about, shown, dropout=dropout))
    return _figure(target, title, "steps T of the search", "R_vadv", paper()["fig1"]["steps"], panels)


def _fig1_lines(request: Request, target: str) -> tuple[str, list[Curve]]:
    """Return the title and the lines of a part of Figure 1."""
    method = FIG1[target]
    if method is None:
        title = "Figure 1a: how adversarial the perturbations are, on a GCN trained without them"
        return title, [Curve(probe, short(probe), "gcn", probe) for probe in request.methods_of(PROBES)]
    name = short(method)
    title = f"Figure {target[3:]}: {name}'s R_vadv on models trained without and with {name}"
    words = {"without": "gcn", "with": method}
    return title, [Curve(w, f"trained {w} {name}", trained, method) for w, trained in words.items()]


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
        field = _validation(store, sweeps[dataset, "field"], "field", NORMS["field"], None)
        panels.append(_panel(dataset, "", [row, field]))  # the published points are drawn once
    x = paper()["fig3"]["epsilon"]
    title = "Figure 3: validation accuracy of S-BVAT against epsilon"
    return _figure("fig3", title, "epsilon", "validation accuracy (%)", x, panels)


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
    return _figure("fig4", title, "alpha", "validation accuracy (%)", x, panels)


def _panel(dataset: str, title: str, lines: list[dict[str, Any]], **rest: Any) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "title": f"{named(dataset)}, {title}" if title else named(dataset),
        "series": lines,
        **rest,
    }


def _figure(
    target: str, title: str, x: str, y: str, values: Sequence[float], panels: list[Any]
) -> dict[str, Any]:
    return {
        "target": target,
        "title": title,
        "x": {"label": x, "values": list(values)},
        "y": {"label": y},
        "panels": panels,
    }
