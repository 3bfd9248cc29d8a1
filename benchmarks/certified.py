"""How near proved and attacked norms are, and whether any attack breaks what is proved.

python benchmarks/certified.py cora citeseer pubmed GRAPH.npz... --out results/certified/certified.json

A pair is a node and a change of exactly its certified norm, one per class, start and step of projected
gradient ascent in double precision; it is a violation if the class changes. ``regularised_epochs`` is 0 where
the weights with the best validation accuracy come from before the regulariser: such a row says nothing about
its method.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bvat.audit import audit, certify, sample_nodes
from bvat.audit.copied_fields import copied_fields
from bvat.audit.worst_case import RecordingProblem
from bvat.data import load
from bvat.data.files import write_json
from bvat.graph import Graph
from bvat.perturb.problem import FixedPass
from bvat.perturb.searches.smallest_flip import margins
from bvat.training.loop import train
from bvat.training.provenance import versions
from bvat.training.settings import preset, short_name
from bvat.training.state import restore_model

RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "GCN 16": ("none", {"hidden": 16}),
    "GCN 64": ("none", {"hidden": 64}),
    "VAT 64": ("vat", {"hidden": 64}),
    "S-BVAT 64": ("sbvat", {"hidden": 64}),
    "O-BVAT 64": ("obvat", {"hidden": 64}),
    "SGC": ("none", {"model": "sgc"}),
    "APPNP": ("none", {"model": "appnp"}),
    "random propagation": ("none", {"model": "random-propagation"}),
}


def violations(
    model: Any, graph: Graph, nodes: Tensor, radius: Tensor, steps: int, starts: int
) -> tuple[int, int]:
    """Return how many changes of the certified norm changed a class, and how many were tried.

    Shapes: nodes int64 (n); radius (N).
    """
    broken, tried, generator = 0, 0, torch.Generator().manual_seed(0)
    with torch.no_grad():
        projected = model.project(graph)
        for fields in copied_fields(graph, model.depth, nodes):
            problem = RecordingProblem.on(model, fields, projected)
            point, space, own = FixedPass(problem), problem.space, problem.clean_logits.argmax(1)
            for select in margins(problem.clean_logits, graph.num_classes):
                for _ in range(starts):
                    g = torch.randn(space.shape, generator=generator, dtype=projected.dtype)
                    for _ in range(steps):
                        lengths = fields.sums(space.row_squares(g)).sqrt().clamp_min(1e-300)
                        r = space.scale_rows(g, (radius[fields.centres] / lengths)[fields.owner])
                        logits, pullback = point.linearised(space.add_effect(point.base, r))
                        broken += int((logits.argmax(1) != own).sum())
                        tried += own.numel()
                        g = -space.pull(pullback(select))
    return broken, tried


def measure(graph: Graph, name: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Return what was measured of one run on a graph."""
    method, options = RUNS[name]
    settings = preset("", method, **options)
    trained = train(graph, settings, seed=asked.seed)
    model: Any = restore_model(settings, graph.num_features, graph.num_classes, trained.weights)
    begin = time.perf_counter()
    radius = certify(model, graph).radius
    seconds = time.perf_counter() - begin
    nodes = sample_nodes(graph, asked.nodes)
    attacked = audit(model, graph, nodes=nodes).smallest.double()
    ratio = (radius[nodes] / attacked)[attacked > 0]
    wide, exact = model.double(), graph.to(dtype=torch.float64)
    broken, tried = violations(wide, exact, nodes, certify(wide, exact).radius, asked.steps, asked.starts)
    return {
        "settings": settings.as_dict(),
        "test_accuracy": trained.selected["test"],
        "regularised_epochs": trained.phases.get("second", 0),
        "median_certified": float(radius.median()),
        "median_ratio": float(ratio.median()),
        "tenth_ratio": float(ratio.quantile(0.1)),
        "largest_ratio": float(ratio.max()),
        "pairs": tried,
        "violations": broken,
        "certify_seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=60)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--starts", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    names = ("nodes", "steps", "starts", "seed")
    about = {"asked": {name: getattr(asked, name) for name in names}, "versions": versions()}
    found: dict[str, dict[str, Any]] = {}
    for source in asked.graphs:
        graph = load(source)
        rows = found[short_name(source)] = {}
        for name in RUNS:
            rows[name] = measure(graph, name, asked)
            shown = (rows[name][key] for key in ("median_ratio", "violations", "pairs", "regularised_epochs"))
            sys.stdout.write(" ".join(map(str, (short_name(source), name, *shown))) + "\n")
            sys.stdout.flush()
            asked.out.parent.mkdir(parents=True, exist_ok=True)
            write_json(asked.out, {**about, "graphs": found})


if __name__ == "__main__":
    main()
