"""What the paper measures besides accuracy: R_vadv by steps of the search, and the time per epoch."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from bvat.data.checksums import read_sealed_json, write_sealed_json
from bvat.graph import Graph
from bvat.paper.published import paper, title
from bvat.paper.request import Request
from bvat.perturb.methods import METHODS, ON_GCN
from bvat.store.pool import thread_count
from bvat.store.store import Measurement, RunStore
from bvat.training.loop import TrainedModel, training_step
from bvat.training.provenance import digest
from bvat.training.settings import Settings
from bvat.training.state import restore_model, start_training

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


ROUNDS = 100
WARM_UP = 10


def epoch_times(graph: Graph, settings: dict[str, Settings], rounds: int) -> dict[str, float]:
    """Return the median time of a training step in milliseconds by method; the methods take turns."""
    states = {method: start_training(graph, chosen) for method, chosen in settings.items()}
    times: dict[str, list[float]] = {method: [] for method in settings}
    with thread_count(1):
        for number in range(WARM_UP + rounds):
            for method, state in states.items():
                started = time.perf_counter()
                training_step(state)
                elapsed = time.perf_counter() - started
                if number >= WARM_UP:
                    times[method].append(1000 * elapsed)
    return {method: statistics.median(values) for method, values in times.items()}


def collect_time(request: Request, store: RunStore) -> dict[str, Any]:
    """Return the times relative to a GCN, beside those of the paper."""
    published = paper()["time"]["seconds"]
    found: dict[str, Any] = {}
    for dataset in request.datasets_of("time"):
        settings = {method: request.settings(dataset, method) for method in request.methods_of(tuple(ON_GCN))}
        times = _measured(store, dataset, settings)
        rows: dict[str, Any] = {}
        for method, ms in times.items():
            theirs = published.get(method) if dataset in paper()["time"]["datasets"] else None
            rows[method] = {
                "title": title(method),
                "ms": ms,
                "ratio": ms / times["gcn"] if "gcn" in times else None,
                "paper_ms": None if theirs is None else 1000 * theirs,
                "paper_ratio": None if theirs is None else theirs / published["gcn"],
            }
        found[dataset] = rows
    return {
        "target": "time",
        "title": f"Time per training step: one thread, median of {ROUNDS} steps, methods in turn",
        "times": found,
    }


def _measured(store: RunStore, dataset: str, settings: dict[str, Settings]) -> dict[str, float]:
    """Measure, unless the result for the same settings exists already."""
    about = {method: chosen.as_dict() for method, chosen in settings.items()}
    key = digest([about, store.fingerprints[dataset], ROUNDS])
    path = store.path / "runs" / f"time-{key}.json"
    try:
        stored: dict[str, float] = read_sealed_json(path)["ms"]
        return stored
    except (OSError, ValueError, KeyError, TypeError):
        times = epoch_times(store.graphs[dataset], settings, ROUNDS)
        write_sealed_json(path, {"key": key, "dataset": dataset, "ms": times, "settings": about})
        return times
