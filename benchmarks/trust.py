"""Calibration, prediction sets and doubtful labels of ``auto``, judged on labels that it has not seen.

Every graph is drawn again and again with 20 training labels per class; then a tenth of them gets another
class. Runs that are in the file are kept when the command is repeated:

    python benchmarks/trust.py cora citeseer pubmed FILE.npz... --draws 20-39 --effort 1 --jobs 2
    python benchmarks/trust.py --report
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bvat.baselines.table import AutoOptions
from bvat.data import load
from bvat.data.files import append, write_atomic
from bvat.data.splits import resplit
from bvat.graph import Graph
from bvat.store.claim import taken
from bvat.store.pool import ReportProgress, run_tasks
from bvat.store.progress import ProgressDisplay
from bvat.training.provenance import versions
from bvat.training.trained import predict
from bvat.trust.conformal import prediction_sets
from bvat.trust.held_out import HeldOut
from bvat.trust.review import review
from bvat.tuning.auto import fit
from few_labels import about, numbers, read_runs

FOLDER = Path("results/trust")
LABELS, FLIPPED, COVERAGE, BINS = 20, 0.1, 0.9, 15


@dataclass(frozen=True)
class Task:
    """One draw of one graph."""

    graph: str
    draw: int
    effort: int
    runs: Path

    def run(self, report: ReportProgress) -> None:
        graph = _loaded(self.graph)
        if any((run["graph"], run["draw"]) == (graph.name, self.draw) for run in read_runs(self.runs)):
            return
        drawn = resplit(graph, LABELS, 0, self.draw)
        found = {"graph": graph.name, "draw": self.draw, "effort": self.effort, **about(graph)}
        found |= {"source": versions()["source"], **measure(drawn, self.effort, self.draw)}
        with taken(self.runs.with_suffix(".lock"), wait=True):
            append(self.runs, json.dumps(found, allow_nan=False) + "\n")
        report(1)


@cache
def _loaded(source: str) -> Graph:
    return load(source)


def _run(task: Task, report: ReportProgress) -> None:
    task.run(report)


def _fitted(graph: Graph, effort: int) -> tuple[NDArray[Any], HeldOut]:
    found = fit(graph, 0, AutoOptions(effort=effort))
    p = predict(found.model, graph).double().softmax(1).numpy()
    return p, HeldOut.read(found.report["out_of_fold"], 1.0)


def measure(graph: Graph, effort: int, seed: int) -> dict[str, Any]:
    """Return calibration error, coverage, sizes of sets, and how well flipped labels are found."""
    p, held = _fitted(graph, effort)
    test, labels = graph.test.numpy(), graph.labels.numpy()
    sets = prediction_sets(held, p, COVERAGE)
    covered = sets.member[test, labels[test]]
    clean = 100 * float((p[test].argmax(1) == labels[test]).mean())
    flipped, wrong = _flip(graph, seed)
    q, doubtful = _fitted(flipped, effort)
    found = review(doubtful)
    truth = np.isin(found.nodes, wrong)
    kept = np.setdiff1d(graph.train.numpy(), found.nodes[found.suspect])
    rest = dataclasses.replace(flipped, train=torch.from_numpy(kept))
    try:
        mended = 100 * float((_fitted(rest, effort)[0][test].argmax(1) == labels[test]).mean())
    except Exception:  # all labels of all classes but one are gone
        mended = 0.0
    return {
        "accuracy": clean,
        "calibration_error": expected_error(p[test], labels[test]),
        "coverage": float(covered.mean()),
        "set_size": float(sets.member[test].sum(1).mean()),
        "per_class": sets.per_class,
        "flipped_accuracy": 100 * float((q[test].argmax(1) == labels[test]).mean()),
        "mended_accuracy": mended,
        "average_precision": average_precision(truth),
        "auroc": auroc(truth),
        "suspects": int(found.suspect.sum()),
        "suspects_right": int((found.suspect & truth).sum()),
        "wrong": len(wrong),
    }


def _flip(graph: Graph, seed: int) -> tuple[Graph, NDArray[Any]]:
    """Return the graph with some training labels changed to another class at random, and their nodes."""
    rng = np.random.default_rng(seed)
    nodes = rng.choice(graph.train.numpy(), round(FLIPPED * len(graph.train)), replace=False)
    labels = graph.labels.clone()
    shift = torch.from_numpy(rng.integers(1, graph.num_classes, nodes.size))
    labels[nodes] = (labels[nodes] + shift) % graph.num_classes
    return dataclasses.replace(graph, labels=labels), nodes


def expected_error(p: NDArray[Any], labels: NDArray[Any]) -> float:
    """Return the expected calibration error in percent: the mean of |confidence - accuracy| over 15 bins."""
    confidence, right = p.max(1), p.argmax(1) == labels
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gap = np.bincount(place, confidence - right, minlength=BINS)
    return 100 * float(np.abs(gap).sum() / labels.size)


def average_precision(truth: NDArray[np.bool_]) -> float:
    """Return the mean precision at the rank of every wrong label; truth (m) in the order of the review."""
    rank = np.flatnonzero(truth)
    return float(((np.arange(rank.size) + 1) / (rank + 1)).mean())


def auroc(truth: NDArray[np.bool_]) -> float:
    """Return how often a wrong label is more doubtful than a right one."""
    right_before = np.cumsum(~truth)[truth]
    return float(1 - right_before.mean() / max(1, (~truth).sum()))


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    graphs = list(dict.fromkeys(run["graph"] for run in runs))
    names = ("accuracy", "calibration_error", "coverage", "set_size", "flipped_accuracy", "mended_accuracy",
             "average_precision", "auroc")  # fmt: skip
    rows = {
        graph: {name: float(np.mean([run[name] for run in runs if run["graph"] == graph])) for name in names}
        for graph in graphs
    }
    mean = {name: float(np.mean([row[name] for row in rows.values()])) for name in names}
    lost, back = (
        mean["accuracy"] - mean["flipped_accuracy"],
        mean["mended_accuracy"] - mean["flipped_accuracy"],
    )
    error = [row["calibration_error"] for row in rows.values()]
    covered = [row["coverage"] for row in rows.values()]
    targets = {
        "mean calibration error at most 5": mean["calibration_error"],
        "largest calibration error at most 10": max(error),
        f"mean coverage from {COVERAGE - 0.02:.2f} to {COVERAGE + 0.04:.2f}": mean["coverage"],
        f"smallest coverage at least {COVERAGE - 0.04:.2f}": min(covered),
        "average precision of flipped labels at least 0.5": mean["average_precision"],
        "AUROC of flipped labels at least 0.85": mean["auroc"],
        "share of the lost accuracy that is regained at least 0.5": back / lost if lost > 0 else 1.0,
    }
    return {
        "command": f"python benchmarks/trust.py {' '.join(graphs)} --effort {runs[0]['effort']}",
        "draws": sorted({run["draw"] for run in runs}),
        "sources": sorted({run["source"] for run in runs}),
        "versions": versions(),
        "settings": {"labels": LABELS, "flipped": FLIPPED, "coverage": COVERAGE, "bins": BINS},
        "runs": len(runs),
        "mean": mean,
        "by_graph": rows,
        "targets": targets,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("graphs", nargs="*")
    parser.add_argument("--draws", type=numbers, default="20-39")
    parser.add_argument("--effort", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="write the summary of the runs that there are")
    chosen = parser.parse_args()
    runs = FOLDER / "runs.jsonl"
    FOLDER.mkdir(parents=True, exist_ok=True)
    tasks = [Task(g, draw, chosen.effort, runs) for draw in chosen.draws for g in chosen.graphs]
    if tasks:
        from rich.console import Console

        console = Console(file=sys.stderr)
        with ProgressDisplay("draws", dict.fromkeys(tasks, 1.0), console, line_every=60) as display:
            run_tasks(_run, tasks, chosen.jobs, display.update)
    found = summary(read_runs(runs))
    write_atomic(FOLDER / "summary.json", json.dumps(found, indent=1) + "\n")
    for name, value in found["targets"].items():
        sys.stdout.write(f"{name}: {value:.3f}\n")


if __name__ == "__main__":
    main()
