"""Few labels and nothing else: ``auto``, a plain GCN and fixed recipes of scikit-learn on the same labels.

Every graph is drawn again and again with L training labels per class and no validation labels. Runs that are
in the file are kept when the command is repeated; then the summary and the pictures of the guide:

    python benchmarks/few_labels.py cora citeseer pubmed FILE.npz... --effort 2 --jobs 2
    python benchmarks/few_labels.py --report

After a change of ``auto``, ``--again`` measures it alone where the file has it from other code. The GCN and
the recipes are kept with the ``source`` that they were measured with; ``auto`` has its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from bvat.baselines.table import AutoOptions
from bvat.data import load, synthetic_graph
from bvat.data.files import append
from bvat.data.splits import resplit
from bvat.graph import Graph
from bvat.store.claim import taken
from bvat.store.pool import ReportProgress, run_tasks
from bvat.training.loop import train
from bvat.training.provenance import versions
from bvat.training.settings import Settings, preset
from bvat.tuning import auto
from bvat.tuning.cross_validation import without_validation
from few_recipes import RECIPES, Inputs, measure_recipe
from few_summary import auto_source, write_report

OUT = Path("results/few-labels")
LABELS = (1, 2, 5, 20)
DRAWS = tuple(range(20, 30))
"""Kept for this measurement: settings are to be chosen on others."""


@dataclass(frozen=True)
class Job:
    """All numbers of labels of one draw of one graph, which is a name or a path."""

    graph: str
    draw: int
    labels: tuple[int, ...]
    effort: int
    runs: Path
    again: bool = False

    def run(self, report: ReportProgress) -> None:
        """Measure what is missing in the file, and add it line by line."""
        _warm_up()
        graph = _loaded(self.graph)
        for count in self.labels:
            key = (graph.name, count, self.draw)
            known = next((run for run in read_runs(self.runs) if key_of(run) == key), None)
            if known is None or (self.again and auto_source(known) != versions()["source"]):
                drawn = resplit(graph, count, 0, self.draw)
                if known is None:
                    found = {"graph": graph.name, "labels": count, "draw": self.draw, **about(graph)}
                    found |= measure(drawn, _inputs(self.graph), self.effort)
                else:
                    ours = {"source": versions()["source"], **measure_auto(drawn, self.effort)}
                    found = {**known, "effort": self.effort, "auto": ours}
                with taken(self.runs.with_suffix(".lock"), wait=True):
                    append(self.runs, _begin(self.runs) + json.dumps(found, allow_nan=False) + "\n")
            report(count)


def read_runs(path: Path) -> list[dict[str, Any]]:
    """Return the runs of a file, of several of the same draw and labels the last.

    A line that was cut off by a kill does not count.
    """
    if not path.exists():
        return []
    found = {}
    for line in path.read_text("utf-8").splitlines():
        with contextlib.suppress(ValueError):
            run = json.loads(line)
            found[key_of(run)] = run
    return list(found.values())


def key_of(run: Mapping[str, Any]) -> tuple[str, int | None, int]:
    """Return what a run is of; benchmarks with one number of labels do not store it."""
    return run["graph"], run.get("labels"), run["draw"]


def _begin(path: Path) -> str:
    """Return the end of the last line if a kill has cut it off."""
    return "\n" if path.exists() and path.read_bytes()[-1:] not in (b"", b"\n") else ""


def about(graph: Graph) -> dict[str, int]:
    return {name: getattr(graph, f"num_{name}") for name in ("nodes", "edges", "features", "classes")}


@cache
def _warm_up() -> None:
    """Compile kernels on a small graph, so that no run is charged for it."""
    graph = synthetic_graph(nodes=90, edges=200, features=20, classes=3, train_per_class=5, val=10, test=20)
    measure(resplit(graph, 2, 0, 0), Inputs(graph), 2)


@cache
def _loaded(source: str) -> Graph:
    return load(source)


_prepared: dict[str, Inputs] = {}


def _inputs(source: str) -> Inputs:
    """Return the inputs of the recipes; of other graphs only neighbours and components are kept."""
    for name, inputs in _prepared.items():
        if name != source:
            inputs.__dict__.pop("ranked", None)
    return _prepared.setdefault(source, Inputs(_loaded(source)))


def gcn_settings() -> Settings:
    return without_validation(preset("", "none"))


def measure(graph: Graph, inputs: Inputs, effort: int) -> dict[str, Any]:
    """Return test accuracies and costs of everything on one draw, as plain values."""
    return {
        "test_nodes": len(graph.test),
        "effort": effort,
        "source": versions()["source"],
        "gcn": measure_gcn(graph),
        "recipes": {name: measure_recipe(inputs, graph, name) for name in RECIPES},
        "auto": measure_auto(graph, effort),
    }


def measure_gcn(graph: Graph) -> dict[str, float]:
    started = time.process_time()
    accuracy = train(graph, gcn_settings()).selected["test"]
    return {"accuracy": accuracy, "cpu_seconds": round(time.process_time() - started, 2)}


def measure_auto(graph: Graph, effort: int) -> dict[str, Any]:
    """Return accuracy, estimate, weights, costs, and what each member would reach alone."""
    told: list[dict[str, float]] = []
    clock, started = time.perf_counter(), time.process_time()

    def so_far() -> dict[str, float]:
        spent = {"cpu_seconds": time.process_time() - started, "seconds": time.perf_counter() - clock}
        return {name: round(value, 2) for name, value in spent.items()}

    options = AutoOptions(effort=effort)
    fitted = auto.fit(graph, 0, options, tell=lambda text: told.append(so_far()))
    cost = {**so_far(), "first_answer": told[0]}
    model: Any = fitted.model
    with torch.no_grad():
        accuracy = _accuracy(graph, model(graph))
        members = model.member_logits(model.graphs(graph), model.project(graph))
    weights = {row["name"]: row["weight"] for row in fitted.report["members"]}
    estimate = fitted.report["estimate"]
    return {
        "accuracy": accuracy,
        **cost,
        "estimate": estimate and {name: estimate[name] for name in ("accuracy", "low", "high", "nodes")},
        "members": {
            name: {"accuracy": _accuracy(graph, logits), "weight": weights.get(name, 0.0)}
            for name, logits in members.items()
        },
        "smoothing": fitted.report["smoothing"],
        "edges_agree": fitted.report["edges_agree"],
    }


def _accuracy(graph: Graph, logits: torch.Tensor) -> float:
    right = logits.argmax(1)[graph.test] == graph.labels[graph.test]
    return 100 * float(right.double().mean())


def _run(job: Job, report: ReportProgress) -> None:
    job.run(report)


def numbers(text: str) -> tuple[int, ...]:
    """Read ``1,2,5`` or ``20-29``."""
    low, dash, high = text.partition("-")
    return tuple(range(int(low), int(high) + 1)) if dash else tuple(map(int, text.split(",")))


def main(arguments: Sequence[str]) -> None:
    """Measure draw by draw, small graphs first, or summarise what is there."""
    parser = argparse.ArgumentParser(prog="python benchmarks/few_labels.py")
    parser.add_argument("graphs", nargs="*", help="names or paths, in the order in which they are measured")
    parser.add_argument("--labels", type=numbers, default=LABELS, help="per class, such as 1,2,5,20")
    parser.add_argument("--draws", type=numbers, default=DRAWS, help="such as 20-29")
    parser.add_argument("--effort", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--pictures", type=Path, default=Path("docs/pictures"))
    parser.add_argument("--again", action="store_true", help="measure auto again where its code has changed")
    parser.add_argument("--report", action="store_true", help="write the summary and the pictures")
    asked = parser.parse_args(arguments)
    runs = asked.out / "runs.jsonl"
    if asked.graphs:
        asked.out.mkdir(parents=True, exist_ok=True)
        jobs = [
            Job(graph, draw, asked.labels, asked.effort, runs, asked.again)
            for draw in asked.draws
            for graph in asked.graphs
        ]

        def finished(job: Job, result: Any) -> None:
            sys.stdout.write(f"draw {job.draw} of {Path(job.graph).stem}\n")
            sys.stdout.flush()

        run_tasks(_run, jobs, asked.jobs, lambda job, done: None, finished=finished)
    if asked.report:
        write_report(read_runs(runs), asked.out, asked.pictures, gcn_settings())


if __name__ == "__main__":
    main(sys.argv[1:])
