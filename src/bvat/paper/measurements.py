"""What the paper measures besides accuracy: R_vadv by steps of the search."""

from __future__ import annotations

from typing import Any

import torch

from bvat.graph import Graph
from bvat.paper.published import paper
from bvat.perturb.methods import METHODS
from bvat.store.store import Measurement
from bvat.training.loop import TrainedModel
from bvat.training.settings import Settings
from bvat.training.state import restore_model

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
