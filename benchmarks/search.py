"""Strength of the fast search: its R_vadv and that of ten cold steps of Adam, during training.

python benchmarks/search.py cora citeseer pubmed --out results/bench/search.json

A model is trained with O-BVAT and Adam. In every epoch both searches perturb the same model under the same
dropout masks: Adam takes T = 10 steps from a cold start, the fast search one full step from its own last
perturbation, with every row as long as Adam's rows on average.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch

from bvat.bench.measure import machine, settings_of
from bvat.data import load
from bvat.data.files import write_json
from bvat.graph import Graph
from bvat.perturb.regulariser import Regulariser
from bvat.perturb.searches import AdamAscent, FastAscent
from bvat.training.loop import training_step
from bvat.training.provenance import versions
from bvat.training.settings import Settings, short_name
from bvat.training.state import start_training


def measure_search(graph: Graph, settings: Settings, *, every: int = 20) -> dict[str, Any]:
    """Return R_vadv of both searches during training, and the minimum and mean of their ratios.

    Args:
        graph: the graph to train on.
        settings: those of O-BVAT with Adam.
        every: epochs between two measurements.
    """
    state = start_training(graph, settings)
    model, generator = state.model, state.generator
    adam = AdamAscent(settings.steps, settings.step_size, settings.gamma, settings.start)
    fast = FastAscent(epsilon=0.0, steps=1)
    points = []
    for epoch in range(1, settings.epochs + 1):
        training_step(state)
        masks = model.draw_masks(graph, generator)
        projected = model.project(graph, masks).detach()
        logits = model.propagate(graph, projected, masks).detach()
        found = {}
        for name, search in (("adam", adam), ("fast", fast)):
            same = torch.Generator().manual_seed(epoch)  # the masks are drawn first, so they are the same
            regulariser = Regulariser(search=search, dropout="reuse", generator=same)
            found[name] = regulariser(model, graph, logits, masks, projected)
            fast.epsilon = float(found["adam"].row_norm)
        if epoch % every == 0:
            values = {name: outcome.r_vadv for name, outcome in found.items()}
            points.append({"epoch": epoch, "row_norm": fast.epsilon, **values})
    ratios = [point["fast"] / point["adam"] for point in points]
    return {"points": points, "least_ratio": min(ratios), "mean_ratio": sum(ratios) / len(ratios)}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    found = {
        short_name(name): measure_search(load(name), settings_of(short_name(name), "obvat"))
        for name in asked.graphs
    }
    write_json(asked.out, {"search": found, "machine": machine(), "versions": versions()})


if __name__ == "__main__":
    main(sys.argv[1:])
