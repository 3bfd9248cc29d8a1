"""How near proved and attacked norms are, and whether any attack breaks what is proved.

python benchmarks/certified.py cora citeseer pubmed GRAPH.npz... --out results/certified/ratios.json
python benchmarks/certified.py GRAPH.npz... --deep --nodes 20 --every 10 --out results/certified/ratios.json
python benchmarks/certified.py cora citeseer --budgets --out results/certified/budgets.json
python benchmarks/certified.py cora citeseer --seeds 3 --curves --out results/certified/curves.json
python benchmarks/certified.py --picture --out results/certified/curves.json

Files of graphs are split with 20 labels per class. A pair is a node and a change of exactly its certified
norm, one per class, start and step of projected gradient ascent in double precision; it is a violation if the
class changes. Where the weights with the best validation accuracy come from before the regulariser, those of
the last epoch are measured (``select``), because the others say nothing about the method.

With ``--budgets``: for each budget and all nodes, how near the norms are, and the share of nodes that is
proved, broken and between at a few norms relative to a feature row.

With ``--curves``: of test nodes drawn at random, the share that is right and proved to stay so, and the share
that is right and not broken by the attack, against the norm of the change relative to a feature row.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from bvat.audit import Certificate, audit, certify, sample_nodes
from bvat.audit.certify import Budget, certificates
from bvat.audit.copied_fields import CopiedFields, copied_fields
from bvat.audit.one_row import longest_rows
from bvat.audit.worst_case import RecordingProblem
from bvat.data import load
from bvat.data.files import write_json
from bvat.data.splits import resplit
from bvat.graph import Graph
from bvat.perturb.problem import FixedPass
from bvat.perturb.searches.smallest_flip import margins
from bvat.report.charts import style
from bvat.report.plots import band_chart
from bvat.report.svg import document
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
DEEP = ("APPNP", "random propagation")
"""Models for which each receptive field is most of the graph."""
BUDGET_RUNS = ("GCN 16", "GCN 64", "VAT 64", "O-BVAT 64")
METHODS = {
    "GCN": "none",
    "VAT": "vat",
    "S-BVAT": "sbvat",
    "O-BVAT": "obvat",
    "FLAG": "flag",
    "GRAND": "grand",
}
SIZES = [round(0.02 * step, 2) for step in range(21)]
FEW_SIZES = (0.02, 0.05, 0.1, 0.2)
PICTURE = Path("docs/pictures/certified.svg")


def steps_to_norm(budget: Budget, squares: Tensor, fields: CopiedFields) -> Tensor:
    """Return the factors (m) that make a gradient the steepest change of norm 1; squares (m) of its rows."""
    tiny = torch.finfo(squares.dtype).tiny
    if budget == "graph":
        squares = fields.sums(squares)[fields.owner]
    elif budget == "node":
        row = longest_rows(squares, fields.owner, fields.centres.numel())  # one only, also of equal ones
        return torch.zeros_like(squares).index_copy_(0, row, squares[row].clamp_min(tiny).rsqrt())
    return squares.clamp_min(tiny).rsqrt()


def violations(
    model: Any, graph: Graph, nodes: Tensor, proof: Certificate, steps: int, starts: int
) -> tuple[int, int]:
    """Return how many changes of the certified norm changed a class, and how many were tried.

    Shapes: nodes int64 (n).
    """
    broken, tried, generator = 0, 0, torch.Generator().manual_seed(0)
    with torch.no_grad():
        projected = model.project(graph)
        for fields in copied_fields(graph, model.depth, nodes):
            problem = RecordingProblem.on(model, fields, projected)
            point, space, own = FixedPass(problem), problem.space, problem.clean_logits.argmax(1)
            radius = proof.radius[fields.centres][fields.owner]
            for select in margins(problem.clean_logits, graph.num_classes):
                for _ in range(starts):
                    g = torch.randn(space.shape, generator=generator, dtype=projected.dtype)
                    for _ in range(steps):
                        unit = steps_to_norm(proof.budget, space.row_squares(g), fields)
                        r = space.scale_rows(g, radius * unit)
                        logits, pullback = point.linearised(space.add_effect(point.base, r))
                        broken += int((logits.argmax(1) != own).sum())
                        tried += own.numel()
                        g = -space.pull(pullback(select))
    return broken, tried


def fitted(graph: Graph, method: str, seed: int, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Return a trained model and what is to be known about it."""
    settings = preset("", method, **options)
    trained = train(graph, settings, seed=seed)
    if method != "none" and not trained.phases.get("second", 0):
        settings = preset("", method, **options, select="last")
        trained = train(graph, settings, seed=seed)
    model = restore_model(settings, graph.num_features, graph.num_classes, trained.weights)
    about = {"settings": settings.as_dict(), "test_accuracy": trained.selected["test"]}
    return model, {**about, "select": settings.select, "regularised_epochs": trained.phases.get("second", 0)}


def measure(graph: Graph, name: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Return what was measured of one run on a graph."""
    method, options = RUNS[name]
    model, about = fitted(graph, method, asked.seed, **options)
    begin = time.process_time()
    proof = certify(model, graph)
    seconds = time.process_time() - begin
    nodes = sample_nodes(graph, asked.nodes)
    attacked = audit(model, graph, nodes=nodes).smallest.double()
    wide, exact, few = model.double(), graph.to(dtype=torch.float64), nodes[:: asked.every]
    broken, tried = violations(wide, exact, few, certify(wide, exact), asked.steps, asked.starts)
    return {
        **about,
        "nodes": asked.nodes,
        "median_certified": float(proof.radius.median()),
        **ratios(proof.radius[nodes], attacked),
        "pairs": tried,
        "violations": broken,
        "certify_seconds": seconds,
    }


def ratios(certified: Tensor, attacked: Tensor) -> dict[str, float]:
    ratio = (certified / attacked)[attacked > 0]
    return {
        "median_ratio": float(ratio.median()),
        "tenth_ratio": float(ratio.quantile(0.1)),
        "largest_ratio": float(ratio.max()),
    }


def budgets(graph: Graph, name: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Return how much is known of all nodes for each budget; shares in percent."""
    method, options = RUNS[name]
    model, about = fitted(graph, method, asked.seed, **options)
    found = audit(model, graph, certify=True)
    row = float(graph.features.row_squares().mean().sqrt())
    wide, exact, few = model.double(), graph.to(dtype=torch.float64), sample_nodes(graph, asked.nodes)
    rows = {}
    for proof in certificates(wide, exact):
        certified, smallest = (norms.double() for norms in found.norms(proof.budget))
        broken, tried = violations(wide, exact, few[:: asked.every], proof, asked.steps, asked.starts)
        between = ((certified <= size) & (size < smallest) for size in certified)
        states = {str(size): found.states(size * row, proof.budget) for size in FEW_SIZES}
        rows[proof.budget] = {
            **ratios(certified, smallest),
            "not_found": int((~smallest.isfinite()).sum()),
            "most_between": 100 * max(float(each.double().mean()) for each in between),
            "states": {
                size: {state: 100 * float(nodes.double().mean()) for state, nodes in each.items()}
                for size, each in states.items()
            },
            "pairs": tried,
            "violations": broken + int((certified > smallest).sum()),
        }
    return {**about, "budgets": rows}


def curve(graph: Graph, name: str, seed: int, nodes: int) -> dict[str, Any]:
    """Return proved and attacked accuracy of one run in percent, one for each of SIZES."""
    model, about = fitted(graph, METHODS[name], seed)
    chosen = graph.test[torch.randperm(len(graph.test), generator=torch.Generator().manual_seed(0))[:nodes]]
    found = audit(model, graph, nodes=chosen, certify=True)
    row = float(graph.features.row_squares().mean().sqrt())
    right = found.predicted == graph.labels[chosen]
    states = [found.states(size * row) for size in SIZES]
    return {
        **about,
        "median_certified": float(found.certified.median() / row),
        "median_attacked": float(found.smallest.median() / row),
        "proved": [100 * float((right & s["proved"]).double().mean()) for s in states],
        "attacked": [100 * float((right & ~s["broken"]).double().mean()) for s in states],
    }


def picture(found: dict[str, Any]) -> str:
    """Return an SVG with a chart per graph that has all methods: means over seeds."""
    bands = {
        source: {
            name: (
                np.array(found["sizes"]),
                *(np.mean([run[key] for run in runs.values()], 0) for key in ("proved", "attacked")),
            )
            for name, runs in rows.items()
        }
        for source, rows in found["graphs"].items()
        if rows.keys() == METHODS.keys()
    }
    with style():
        figure = Figure(figsize=(5.2 * len(bands), 3.8), layout="constrained")
        for ax, (source, each) in zip(
            figure.subplots(1, len(bands), squeeze=False)[0], bands.items(), strict=True
        ):
            chart = band_chart(
                each, "norm of the change / norm of a feature row", "accuracy in %", title=source
            )
            chart.draw(ax)
            ax.set_title(chart.title)
        figure.axes[0].legend()
        for ax in figure.axes[1:]:
            ax.set_ylabel("")
        return document(figure, "certified and attacked accuracy")


def loaded(source: str) -> Graph:
    graph = load(source)
    return resplit(graph, 20, 500, 0) if Path(source).suffix else graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("graphs", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=60)
    parser.add_argument("--every", type=int, default=6, help="attack every k-th node at its certified norm")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--starts", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3, help="of the curves")
    parser.add_argument("--curves", action="store_true")
    parser.add_argument("--budgets", action="store_true")
    parser.add_argument("--deep", action="store_true", help=f"also {' and '.join(DEEP)}, which take long")
    parser.add_argument("--picture", action="store_true")
    asked = parser.parse_args()
    kept = json.loads(asked.out.read_text("utf-8")) if asked.out.exists() else {}
    if asked.picture:
        PICTURE.write_text(picture(kept), "utf-8")
        return
    names = ("nodes", "every", "steps", "starts", "seed") if not asked.curves else ("nodes", "seeds")
    asked_for = kept.get("asked", {name: getattr(asked, name) for name in names})
    about: dict[str, Any] = {"asked": asked_for, "versions": versions()}
    found: dict[str, dict[str, Any]] = kept.get("graphs", {})
    measured = METHODS if asked.curves else BUDGET_RUNS if asked.budgets else RUNS
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    for source in asked.graphs:
        graph = loaded(source)
        rows = found.setdefault(short_name(source), {})
        for name, seed in product(measured, range(asked.seeds if asked.curves else 1)):
            if asked.curves:
                runs = rows.setdefault(name, {})
                if str(seed) in runs:
                    continue
                row = runs[str(seed)] = curve(graph, name, seed, asked.nodes)
            elif name in rows or (name in DEEP and not asked.deep):
                continue
            else:
                row = rows[name] = (budgets if asked.budgets else measure)(graph, name, asked)
            shown = {key: value for key, value in row.items() if isinstance(value, int | float)}
            sys.stdout.write(f"{short_name(source)} {name} {seed} {shown}\n")
            sys.stdout.flush()
            write_json(asked.out, {**about, "sizes": SIZES, "graphs": found})


if __name__ == "__main__":
    main()
