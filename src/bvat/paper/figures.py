"""Figures 1, 3 and 4: the runs they need, and their series beside those of the paper.

A figure is plain data: ``panels`` with ``series``, each with mean and standard deviation over the seeds at
the ``x`` values, and the published values if there are any. Drawing it needs nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from bvat.graph import Graph
from bvat.paper.published import named, paper, short
from bvat.paper.request import Request
from bvat.perturb.methods import METHODS
from bvat.store.store import Measurement, RunSpec, RunStore
from bvat.training.loop import TrainedModel
from bvat.training.settings import Settings
from bvat.training.state import restore_model
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


REPEATS = 5
"""Number of perturbations drawn for each T; R_vadv is averaged over them."""


def probes() -> dict[str, Any]:
    """Return how perturbations are searched: the settings of each method, the values of T, and repeats."""
    figure = paper()["fig1"]
    return {"probe": figure["probe"], "steps": figure["steps"], "repeats": REPEATS}


def measure_curves(graph: Graph, settings: Settings, trained: TrainedModel) -> dict[str, Any]:
    """Return R_vadv by method and T, with dropout on (as in the paper) and off.

    With dropout on, the clean pass and each perturbed pass draw their own masks, so R_vadv includes the
    disagreement of two dropout passes even at r = 0; with dropout off it is the effect of r alone.
    T = 0 is the starting point of the search: a random direction of length epsilon, or for O-BVAT a Gaussian.
    """
    model = restore_model(settings, graph.num_features, graph.num_classes, trained.weights).to(graph.device)
    # a stream of its own, so that training's random numbers are not repeated
    generator = torch.Generator(graph.device).manual_seed(trained.seed + 2**33)
    curves: dict[str, dict[str, list[float]]] = {}
    for dropout in ("on", "off"):
        model.train(dropout == "on")
        curves[dropout] = {
            method: [
                _mean_r_vadv(
                    graph, model, Settings(method=method, steps=steps, masks="fresh", **probe), generator
                )
                for steps in probes()["steps"]
            ]
            for method, probe in probes()["probe"].items()
        }
    return {"curves": curves}


CURVES = Measurement("curves", measure_curves, probes, effort=100)
"""Measures the curves of Figure 1 on every trained model."""


def _mean_r_vadv(graph: Graph, model: Any, probe: Settings, generator: torch.Generator) -> float:
    regulariser = METHODS[probe.method].build(probe.of_method, generator)
    if regulariser is None:
        raise ValueError(f"{probe.method} searches for no perturbation")
    total = 0.0
    with torch.no_grad():
        for _ in range(REPEATS):
            logits = model(graph, model.draw_masks(graph, generator))
            total += regulariser(model, graph, logits).r_vadv
    return total / REPEATS


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
    method = FIG1[target]
    if method is None:
        title = "Figure 1a: how adversarial the perturbations are, on a GCN trained without them"
        return title, [Curve(probe, short(probe), "gcn", probe) for probe in request.methods_of(PROBES)]
    name = short(method)
    title = f"Figure {target[3:]}: {name}'s R_vadv on models trained without and with {name}"
    words = {"without": "gcn", "with": method}
    return title, [Curve(w, f"trained {w} {name}", trained, method) for w, trained in words.items()]


class SweptLine(NamedTuple):
    """A line of Figure 3 or 4: validation accuracy of ``method`` against one of its settings."""

    name: str
    label: str
    method: str
    fixed: dict[str, Any]
    """Settings that differ from the preset, besides the one on the x axis."""
    published: Sequence[float] | None


SWEEPS = {
    "fig3": ("epsilon", "Figure 3: validation accuracy of S-BVAT against epsilon"),
    "fig4": ("alpha", "Figure 4: validation accuracy against alpha, the weight of the entropy"),
}
"""The setting on the x axis, and the title."""


def _swept_lines(request: Request, target: str, dataset: str) -> list[SweptLine]:
    figure = paper()[target]
    if target == "fig3":
        row, field = ({**figure["settings"].get(dataset, {}), "norm": norm} for norm in ("row", "field"))
        label = "epsilon per row, as in the authors' code"
        return [
            SweptLine("sbvat", label, "sbvat", row, figure["accuracy"].get(dataset)),
            SweptLine("field", "epsilon per receptive field, as in the text", "sbvat", field, None),
        ]
    shown = figure["accuracy"] if dataset in figure["datasets"] else {}
    return [
        SweptLine(method, short(method), method, figure["settings"][method], shown.get(method))
        for method in request.methods_of(("sbvat", "obvat"))
    ]


def _swept_runs(request: Request, target: str, dataset: str, line: SweptLine) -> list[list[RunSpec]]:
    varied, _ = SWEEPS[target]
    settings = [
        request.settings(dataset, line.method, **{**line.fixed, varied: value})
        for value in paper()[target][varied]
    ]
    return [[RunSpec(dataset, each, seed) for each in settings] for seed in request.seeds_of(dataset)]


def plan_sweep(request: Request, target: str) -> list[RunSpec]:
    return [
        run
        for dataset in request.datasets_of(target)
        for line in _swept_lines(request, target, dataset)
        for row in _swept_runs(request, target, dataset, line)
        for run in row
    ]


def collect_sweep(request: Request, store: RunStore, target: str) -> dict[str, Any]:
    varied, title = SWEEPS[target]
    panels = []
    for dataset in request.datasets_of(target):
        shown = []
        for line in _swept_lines(request, target, dataset):
            rows = _swept_runs(request, target, dataset, line)
            values = [[result["last"]["val"] for result in store.results(row)] for row in rows]
            percent = None if line.published is None else [100 * value for value in line.published]
            shown.append(series(line.name, line.label, values, percent))
        panels.append(_panel(dataset, "", shown))
    return _figure(target, title, varied, "validation accuracy (%)", paper()[target][varied], panels)


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
