"""The time of an epoch: all methods in turn in one process, so that whatever slows the machine slows all."""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from typing import Any

import torch

from bvat.data.files import write_json
from bvat.graph import Graph
from bvat.paper.claims import time_claims
from bvat.paper.published import paper, title
from bvat.paper.request import Request
from bvat.perturb.methods import METHODS
from bvat.training.build import build_model, build_regulariser
from bvat.training.loop import TrainState, make_optimizer, training_step
from bvat.training.pool import thread_count
from bvat.training.runs import Run, Workshop
from bvat.training.settings import Settings

ROUNDS = 100
WARM_UP = 10


def epoch_times(graph: Graph, settings: dict[str, Settings], rounds: int) -> dict[str, float]:
    """Return the median time of a training step in milliseconds, by method, measured in turn."""
    states = {}
    for method, chosen in settings.items():
        generator = torch.Generator().manual_seed(0)
        model = build_model(chosen, graph.num_features, graph.num_classes, generator)
        states[method] = TrainState(
            model, make_optimizer(model, chosen), build_regulariser(chosen, generator), generator
        )
    times: dict[str, list[float]] = {method: [] for method in settings}
    with thread_count(1):
        for number in range(WARM_UP + rounds):
            for method, state in states.items():
                started = time.perf_counter()
                training_step(state, graph, settings[method])
                elapsed = time.perf_counter() - started
                if number >= WARM_UP:
                    times[method].append(1000 * elapsed)
    return {method: statistics.median(values) for method, values in times.items()}


def plan_time(request: Request) -> list[Run]:
    """Return no runs: times are measured while nothing else runs, by :func:`collect_time`."""
    return []


def collect_time(request: Request, workshop: Workshop) -> dict[str, Any]:
    """Return the times, as multiples of a GCN's, beside the paper's."""
    published = paper()["time"]["seconds"]
    found: dict[str, Any] = {}
    claims = []
    for dataset in request.datasets_of("time"):
        settings = {
            method: request.settings(dataset, method) for method in request.methods_of(tuple(METHODS))
        }
        times = _measured(workshop, dataset, settings)
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
        claims += time_claims(
            dataset,
            {method: row["ratio"] for method, row in rows.items() if row["ratio"] is not None},
            {m: row["paper_ratio"] for m, row in rows.items() if row["paper_ratio"] is not None},
        )
    return {
        "target": "time",
        "title": f"Time of a training step, one thread, median of {ROUNDS} steps taken in turn",
        "times": found,
        "claims": claims,
    }


def _measured(workshop: Workshop, dataset: str, settings: dict[str, Settings]) -> dict[str, float]:
    """Measure, unless a result of the same settings is there already."""
    about = {method: chosen.as_dict() for method, chosen in settings.items()}
    content = json.dumps([about, workshop.fingerprints[dataset], ROUNDS], sort_keys=True)
    key = hashlib.sha256(content.encode()).hexdigest()[:20]
    path = workshop.folder / "runs" / f"time-{key}.json"
    try:
        stored: dict[str, float] = json.loads(path.read_text("utf-8"))["ms"]
        return stored
    except (OSError, ValueError, KeyError, TypeError):
        times = epoch_times(workshop.graphs[dataset], settings, ROUNDS)
        write_json(path, {"key": key, "dataset": dataset, "ms": times, "settings": about})
        return times
