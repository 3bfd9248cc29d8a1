"""Figures 1, 3 and 4: the runs they need, and their series beside those of the paper.

A figure is plain data: ``panels`` with ``series``, each with mean and standard deviation over the seeds at
the ``x`` values, and the published values if there are any. Drawing it needs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from bvat.graph import Graph
from bvat.paper.request import Request, named, paper
from bvat.perturb.methods import METHODS
from bvat.store.store import Measurement, RunSpec, RunStore
from bvat.training.loop import TrainedModel
from bvat.training.settings import Settings
from bvat.training.state import restore_model
from bvat.training.statistics import sample
from bvat.tuning.variants import Variant

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
    model: Any = restore_model(settings, graph.num_features, graph.num_classes, trained.weights).to(
        graph.device
    )
    # a stream of its own, so that training's random numbers are not repeated
    generator = torch.Generator(graph.device).manual_seed(trained.seed + 2**33)

    def r_vadv(probe: Settings) -> float:
        regulariser: Any = METHODS[probe.method].build(probe.of_method, generator)
        total = 0.0
        with torch.no_grad():
            for _ in range(REPEATS):
                logits = model(graph, model.draw_masks(graph, generator))
                total += regulariser(model, graph, logits).r_vadv
        return total / REPEATS

    curves: dict[str, dict[str, list[float]]] = {}
    for dropout in ("on", "off"):
        model.train(dropout == "on")
        curves[dropout] = {
            method: [
                r_vadv(Settings(method=method, steps=steps, masks="fresh", **probe))
                for steps in probes()["steps"]
            ]
            for method, probe in probes()["probe"].items()
        }
    return {"curves": curves}


CURVES = Measurement("curves", measure_curves, probes, effort=100)
"""Measures the curves of Figure 1 on every trained model."""


Results = Callable[[list[RunSpec]], list[dict[str, Any]]]
"""Returns the results of runs, or nothing where they are only planned."""
Panel = dict[str, Any]

TITLES = {
    "fig1a": "Figure 1a: how adversarial the perturbations are, on a GCN trained without them",
    "fig1b": "Figure 1b: S-BVAT's R_vadv on models trained without and with S-BVAT",
    "fig1c": "Figure 1c: O-BVAT's R_vadv on models trained without and with O-BVAT",
    "fig3": "Figure 3: validation accuracy of S-BVAT against epsilon",
    "fig4": "Figure 4: validation accuracy against alpha, the weight of the entropy",
}
FIG1 = {"fig1a": None, "fig1b": "sbvat", "fig1c": "obvat"}
"""The parts of Figure 1, and the method with which b and c train."""


def _fig1(request: Request, target: str, results: Results) -> Iterator[Panel]:
    """1a is R_vadv of the three methods on a GCN trained without them.

    1b and 1c are R_vadv of S-BVAT and O-BVAT on models trained without and with the method.
    """
    figure, method = paper()["fig1"], FIG1[target]
    if method is None:  # name of the line, of the published one, label, method of training, method of search
        shown = [(p, p, _short(p), "gcn", p) for p in request.methods_of(("vat", "sbvat", "obvat"))]
    else:
        words = {"without": "gcn", "with": method}
        shown = [(m, w, f"trained {w} {_short(method)}", m, method) for w, m in words.items()]
    for dataset in request.datasets_of(target):
        published = figure[target[-1]] if dataset in figure["datasets"] else {}
        for dropout, about in (("on", "dropout on, as in the paper"), ("off", "dropout off")):
            series = []
            for name, key, label, trained, probe in shown:
                settings = request.settings(dataset, trained, **figure["training"][trained])
                runs = [RunSpec(dataset, settings, seed, CURVES) for seed in request.seeds_of(dataset)]
                rows = [result["curves"][dropout][probe] for result in results(runs)]
                series.append(_series(name, label, rows, published.get(key) if dropout == "on" else None))
            title = f"{named(dataset)}, {about}"
            yield {"dataset": dataset, "title": title, "dropout": dropout, "series": series}


SWEEPS = {"fig3": "epsilon", "fig4": "alpha"}
"""The setting on the x axis of figures of validation accuracy."""


def _sweep(request: Request, target: str, results: Results) -> Iterator[Panel]:
    figure, varied = paper()[target], SWEEPS[target]
    for dataset in request.datasets_of(target):
        series = []
        for name, label, method, fixed, published in _lines_of(request, target, dataset):
            each = [request.settings(dataset, method, **{**fixed, varied: x}) for x in figure[varied]]
            found = [results([RunSpec(dataset, s, seed) for s in each]) for seed in request.seeds_of(dataset)]
            rows = [[result["last"]["val"] for result in row] for row in found if row]
            percent = None if published is None else [100 * value for value in published]
            series.append(_series(name, label, rows, percent))
        yield {"dataset": dataset, "title": named(dataset), "series": series}


def _lines_of(request: Request, target: str, dataset: str) -> list[tuple[Any, ...]]:
    """Return per line name, label, method, what its points have in common, and published accuracies."""
    figure = paper()[target]
    if target == "fig4":
        accuracy = figure["accuracy"] if dataset in figure["datasets"] else {}
        shown = request.methods_of(("sbvat", "obvat"))
        return [(name, _short(name), name, figure["settings"][name], accuracy.get(name)) for name in shown]
    row, field = ({**figure["settings"].get(dataset, {}), "norm": norm} for norm in ("row", "field"))
    label = "epsilon per row, as in the authors' code"
    return [
        ("sbvat", label, "sbvat", row, figure["accuracy"].get(dataset)),
        ("field", "epsilon per receptive field, as in the text", "sbvat", field, None),
    ]


def _series(name: str, label: str, rows: list[list[float]], published: Sequence[float] | None) -> Panel:
    """Return a line of a figure: mean and deviation over the seeds, a row each."""
    columns = [sample(column) for column in zip(*rows, strict=True)]
    values = {"mean": [column.mean for column in columns], "std": [column.std for column in columns]}
    paper = None if published is None else list(published)
    return {"name": name, "label": label, "n": len(rows), **values, "paper": paper}


def _panels(request: Request, target: str, results: Results) -> list[Panel]:
    return list((_fig1 if target in FIG1 else _sweep)(request, target, results))


def plan(request: Request, target: str) -> list[RunSpec]:
    needed: list[RunSpec] = []
    _panels(request, target, lambda runs: needed.extend(runs) or [])  # type: ignore[func-returns-value]
    return needed


def collect(request: Request, store: RunStore, target: str) -> dict[str, Any]:
    sweep = SWEEPS.get(target)
    x, y = (sweep, "validation accuracy (%)") if sweep else ("steps T of the search", "R_vadv")
    values = paper()[target][sweep] if sweep else paper()["fig1"]["steps"]
    return {
        "target": target,
        "title": TITLES[target],
        "x": {"label": x, "values": list(values)},
        "y": {"label": y},
        "panels": _panels(request, target, store.results),
    }


def _short(row: str) -> str:
    return Variant.parse(row).short
