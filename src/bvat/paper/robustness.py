"""Figure 1: R_vadv of a trained model against the number T of search steps."""

from __future__ import annotations

from typing import Any

import torch

from bvat.graph import Graph
from bvat.paper.published import paper
from bvat.training.build import build_model, build_regulariser
from bvat.training.loop import TrainedModel
from bvat.training.runs import Run
from bvat.training.settings import Settings

REPEATS = 5
"""Perturbations drawn for each T; what is kept is the mean of their R_vadv."""


def probes() -> dict[str, Any]:
    """Return how perturbations are looked for: the settings of each method, T, and how often."""
    figure = paper()["fig1"]
    return {"probe": figure["probe"], "steps": figure["steps"], "repeats": REPEATS}


def measure_curves(graph: Graph, run: Run, trained: TrainedModel) -> dict[str, Any]:
    """Return R_vadv by method and T, with dropout on (as the paper) and off, and the model's accuracy.

    With dropout on, the clean pass and every perturbed one draw masks of their own, so R_vadv contains the
    disagreement of two dropout passes even at r = 0; with dropout off it is the effect of r alone.
    T = 0 is where a search starts: a random direction of length epsilon, for O-BVAT its Gaussian start.
    """
    model = build_model(run.settings, graph.num_features, graph.num_classes).to(graph.device)
    model.load_state_dict(trained.weights)
    generator = torch.Generator(graph.device).manual_seed(run.seed + 2**33)  # not the numbers of training
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
    return {"curves": curves, "last": trained.last}


def _mean_r_vadv(graph: Graph, model: Any, probe: Settings, generator: torch.Generator) -> float:
    regulariser = build_regulariser(probe, generator)
    if regulariser is None:
        raise ValueError(f"{probe.method} looks for no perturbation")
    total = 0.0
    with torch.no_grad():
        for _ in range(REPEATS):
            logits = model(graph, model.draw_masks(graph, generator))
            total += regulariser(model, graph, logits).r_vadv
    return total / REPEATS
