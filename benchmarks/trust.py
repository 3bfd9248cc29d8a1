"""Calibration, prediction sets and doubtful labels of ``auto``, judged on labels that it has not seen.

Every graph is drawn again and again with 20 training labels per class and no others; all other nodes are for
testing. In some draws a tenth of the labels, drawn at random, then gets another class; training without those
that a review suspects is compared with training on all of them and on the right ones. What is in the file is
kept when the command is repeated, so that draws, graphs and parts can be added:

    python benchmarks/trust.py cora citeseer pubmed FILE.npz... --draws 42-61
    python benchmarks/trust.py cora citeseer pubmed FILE.npz... --draws 42-45 --flip

With --torchcp, which needs TorchCP, the sets of its SNAPS are measured beside ours.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bvat.data.files import append, write_json
from bvat.data.splits import resplit
from bvat.graph import Graph
from bvat.store.claim import taken
from bvat.store.pool import ReportProgress, run_tasks
from bvat.training.provenance import versions
from bvat.trust.conformal import prediction_sets
from bvat.trust.held_out import HeldOut
from bvat.trust.review import review
from bvat.tuning.members import Work
from few_labels import _begin, about, numbers
from shared_work import fitted, prepared
from trust_summary import BINS, COVERAGE, FLIPPED, LABELS, MEASURES, summary

FOLDER = Path("results/trust")


@dataclass(frozen=True)
class Task:
    """One draw of one graph, which is a name or a path."""

    graph: str
    draw: int
    effort: int
    runs: Path
    flip: bool = False
    torchcp: bool = False

    def run(self, report: ReportProgress) -> None:
        """Measure what is missing in the file, and add each part as one line."""
        work = prepared(self.graph, self.effort)
        graph = work.graph
        known = next((run for run in merged(self.runs) if run["draw"] == self.draw
                      and run["graph"] == graph.name), {})  # fmt: skip
        found = {"graph": graph.name, "draw": self.draw, "effort": self.effort, **about(graph)}
        found["source"] = versions()["source"]
        if "sets" not in known or (self.torchcp and not set(known["sets"]) - {"bvat", "bvat weighted"}):
            self._keep(found | measure(work, self.draw, self.torchcp))
        if self.flip and "auroc" not in known:
            self._keep(found | measure_flipped(work, self.draw))
        report(1)

    def _keep(self, found: Mapping[str, Any]) -> None:
        with taken(self.runs.with_suffix(".lock"), wait=True):
            append(self.runs, _begin(self.runs) + json.dumps(found, allow_nan=False) + "\n")


def merged(path: Path) -> list[dict[str, Any]]:
    """Return a dictionary per graph and draw with what all of its lines have measured."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    for line in lines:
        with contextlib.suppress(ValueError):  # cut off by a kill
            run = json.loads(line)
            found.setdefault((run["graph"], run["draw"]), {}).update(run)
    return list(found.values())


def _run(task: Task, report: ReportProgress) -> None:
    task.run(report)


def measure(work: Work, draw: int, torchcp: bool = False) -> dict[str, Any]:
    """Return accuracy, calibration error, and coverage and sizes of sets."""
    graph = resplit(work.graph, LABELS, 0, draw)
    test, labels = graph.test.numpy(), graph.labels.numpy()

    def judged(member: NDArray[np.bool_]) -> dict[str, float]:
        covered = member[test, labels[test]]
        each = [covered[labels[test] == k].mean() for k in range(graph.num_classes)]
        return dict(
            zip(MEASURES, map(float, (covered.mean(), member[test].sum(1).mean(), min(each))), strict=True)
        )

    clean = fitted(work, graph)
    sets = {
        name: prediction_sets(_held(clean.held), clean.p, COVERAGE, per_class=name == "bvat").member
        for name in ("bvat", "bvat weighted")
    }
    if torchcp:
        from torchcp_sets import snaps_sets

        sets |= snaps_sets(work, graph, clean, COVERAGE, draw)
    return {
        "accuracy": accuracy(graph, clean.p),
        "calibration_error": expected_error(clean.p[test], labels[test]),
        "sets": {name: judged(member) for name, member in sets.items()},
    }


def measure_flipped(work: Work, draw: int) -> dict[str, Any]:
    """Return how well flipped labels are found, and what training without them regains."""
    graph = resplit(work.graph, LABELS, 0, draw)
    flipped, wrong = _flip(graph, draw)
    doubtful = fitted(work, flipped)
    found = review(_held(doubtful.held))
    truth = np.isin(found.nodes, wrong)
    without = [
        fitted(
            work, dataclasses.replace(flipped, train=torch.from_numpy(np.setdiff1d(graph.train, left_out)))
        )
        for left_out in (found.nodes[found.suspect], wrong)
    ]
    return {
        "flipped_accuracy": accuracy(graph, doubtful.p),
        "mended_accuracy": accuracy(graph, without[0].p),
        "accuracy_without_wrong": accuracy(graph, without[1].p),
        "average_precision": average_precision(truth),
        "auroc": auroc(truth),
        "suspects": int(found.suspect.sum()),
        "suspects_right": int((found.suspect & truth).sum()),
        "wrong": len(wrong),
    }


def accuracy(graph: Graph, p: NDArray[Any]) -> float:
    test, labels = graph.test.numpy(), graph.labels.numpy()
    return 100 * float((p[test].argmax(1) == labels[test]).mean())


def _held(held: HeldOut | None) -> HeldOut:
    assert held is not None  # there are 20 labels of each class
    return held


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


def main(arguments: Sequence[str]) -> None:
    """Measure graph by graph, if any are named, then summarise all draws in the file."""
    parser = argparse.ArgumentParser(prog="python benchmarks/trust.py")
    parser.add_argument("graphs", nargs="*", help="names or paths, in the order in which they are measured")
    parser.add_argument("--draws", type=numbers, default=tuple(range(42, 62)), help="such as 42-61")
    parser.add_argument("--effort", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--flip", action="store_true", help="make labels wrong too")
    parser.add_argument("--torchcp", action="store_true", help="measure the sets of TorchCP's SNAPS too")
    parser.add_argument("--out", type=Path, default=FOLDER)
    asked = parser.parse_args(arguments)
    name = "trust" if asked.effort == 1 else f"trust-effort-{asked.effort}"
    runs = asked.out / f"{name}.jsonl"
    asked.out.mkdir(parents=True, exist_ok=True)
    tasks = [
        Task(graph, draw, asked.effort, runs, asked.flip, asked.torchcp)
        for graph in asked.graphs
        for draw in asked.draws
    ]

    def finished(task: Task, result: Any) -> None:
        sys.stdout.write(f"draw {task.draw} of {Path(task.graph).stem}\n")
        sys.stdout.flush()

    run_tasks(_run, tasks, asked.jobs, lambda task, done: None, finished=finished)
    protocol = " ".join(str(__doc__).split("\n\n")[1].split(" What is in")[0].split())
    found = summary(merged(runs), protocol)
    write_json(asked.out / f"{name}.json", found)
    for target, each in found["targets"].items():
        sys.stdout.write(f"{target}: {each['measured']:.3f}{'' if each['met'] else ', missed'}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
