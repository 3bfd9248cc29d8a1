"""The time per epoch: the methods take turns in one process, so that other load slows all of them equally."""

from __future__ import annotations

import statistics
import time
from typing import Any

from bvat.data.checksums import read_sealed_json, write_sealed_json
from bvat.graph import Graph
from bvat.paper.published import paper, title
from bvat.paper.request import Request
from bvat.perturb.methods import ON_GCN
from bvat.store.pool import thread_count
from bvat.store.store import RunSpec, RunStore
from bvat.training.loop import training_step
from bvat.training.provenance import digest
from bvat.training.settings import Settings
from bvat.training.state import start_training

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


def plan_time(request: Request) -> list[RunSpec]:
    """Return no runs: :func:`collect_time` measures while nothing else is running."""
    return []


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
