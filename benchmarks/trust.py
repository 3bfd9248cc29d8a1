"""Calibration, prediction sets and doubtful labels of ``auto``, judged on labels that it has not seen.

Every graph is drawn again and again with 20 training labels per class and no others; all other nodes are for
testing. Then a tenth of the labels, drawn at random, gets another class; training without those that a review
suspects is compared with training on all of them and on the right ones. Runs that are in the file are kept
when the command is repeated:

    python benchmarks/trust.py cora citeseer pubmed FILE.npz... --draws 20-39

With --torchcp, which needs TorchCP, the sets of its SNAPS are measured beside ours.
"""

from __future__ import annotations

import argparse
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

from bvat.baselines.table import AutoOptions
from bvat.data.files import append, write_json
from bvat.data.splits import resplit
from bvat.graph import Graph
from bvat.store.claim import taken
from bvat.store.pool import ReportProgress, run_tasks
from bvat.training.provenance import package_versions, versions
from bvat.training.statistics import sample
from bvat.trust.conformal import prediction_sets
from bvat.trust.held_out import HeldOut
from bvat.trust.review import SUSPECT, review
from bvat.tuning.members import Work
from few_labels import _begin, about, numbers, read_runs
from shared_work import fitted, prepared

FOLDER = Path("results/trust")
LABELS, FLIPPED, COVERAGE, BINS = 20, 0.1, 0.9, 15
MEASURES = ("coverage", "size", "worst_class")
"""Of sets: share that has the true class, mean number of classes, coverage of the class with the least."""


@dataclass(frozen=True)
class Task:
    """One draw of one graph, which is a name or a path."""

    graph: str
    draw: int
    effort: int
    runs: Path
    torchcp: bool

    def run(self, report: ReportProgress) -> None:
        """Measure what is missing in the file, and add it as one line."""
        work = prepared(self.graph, self.effort)
        graph = work.graph
        if any((run["graph"], run["draw"]) == (graph.name, self.draw) for run in read_runs(self.runs)):
            return
        found = {"graph": graph.name, "draw": self.draw, "effort": self.effort, **about(graph)}
        found |= {"source": versions()["source"], **measure(work, self.draw, self.torchcp)}
        with taken(self.runs.with_suffix(".lock"), wait=True):
            append(self.runs, _begin(self.runs) + json.dumps(found, allow_nan=False) + "\n")
        report(1)


def _run(task: Task, report: ReportProgress) -> None:
    task.run(report)


def measure(work: Work, draw: int, torchcp: bool = False) -> dict[str, Any]:
    """Return calibration error, coverage, sizes of sets, and how well flipped labels are found."""
    graph = resplit(work.graph, LABELS, 0, draw)
    test, labels = graph.test.numpy(), graph.labels.numpy()

    def accuracy(p: NDArray[Any]) -> float:
        return 100 * float((p[test].argmax(1) == labels[test]).mean())

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
        "accuracy": accuracy(clean.p),
        "calibration_error": expected_error(clean.p[test], labels[test]),
        "sets": {name: judged(member) for name, member in sets.items()},
        "flipped_accuracy": accuracy(doubtful.p),
        "mended_accuracy": accuracy(without[0].p),
        "accuracy_without_wrong": accuracy(without[1].p),
        "average_precision": average_precision(truth),
        "auroc": auroc(truth),
        "suspects": int(found.suspect.sum()),
        "suspects_right": int((found.suspect & truth).sum()),
        "wrong": len(wrong),
    }


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


NAMES = ("accuracy", "calibration_error", "flipped_accuracy", "mended_accuracy", "accuracy_without_wrong",
         "average_precision", "auroc", "suspects", "suspects_right", "wrong")  # fmt: skip


def _means(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    sets = {
        name: {key: float(np.mean([run["sets"][name][key] for run in runs])) for key in MEASURES}
        for name in runs[0]["sets"]
        if all(name in run["sets"] for run in runs)
    }
    return {name: float(np.mean([run[name] for run in runs])) for name in NAMES} | {"sets": sets}


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return means by graph, the mean over graphs with its interval over draws, and the targets."""
    by_graph = {
        graph: [run for run in runs if run["graph"] == graph]
        for graph in dict.fromkeys(run["graph"] for run in runs)
    }
    rows = {
        graph: {"draws": sorted(r["draw"] for r in own), **_means(own)} for graph, own in by_graph.items()
    }
    everywhere = set.intersection(*({run["draw"] for run in own} for own in by_graph.values()))
    by_draw = [_means([run for run in runs if run["draw"] == draw]) for draw in sorted(everywhere)]

    def over_draws(value: Any) -> dict[str, Any]:
        return sample([value(row) for row in by_draw]).as_dict()

    def mean(value: Any) -> float:
        return float(np.mean([value(row) for row in rows.values()]))

    lost = mean(lambda row: row["accuracy"] - row["flipped_accuracy"])
    back = mean(lambda row: row["mended_accuracy"] - row["flipped_accuracy"])
    measured = {
        name: {"mean": mean(lambda row, n=name: row[n]), "over_draws": over_draws(lambda row, n=name: row[n])}
        for name in NAMES
    }
    error = {graph: row["calibration_error"] for graph, row in rows.items()}
    covered = {graph: row["sets"]["bvat"]["coverage"] for graph, row in rows.items()}
    coverage, least, most = float(np.mean([*covered.values()])), COVERAGE - 0.02, COVERAGE + 0.04
    precision, order = measured["average_precision"]["mean"], measured["auroc"]["mean"]
    targets = {
        "mean calibration error at most 5 %": (measured["calibration_error"]["mean"], 0, 5),
        "calibration error of each graph at most 10 %": (max(error.values()), 0, 10),
        f"mean coverage from {least:.2f} to {most:.2f}": (coverage, least, most),
        f"coverage of each graph at least {COVERAGE - 0.04:.2f}": (min(covered.values()), COVERAGE - 0.04, 1),
        "average precision of flipped labels at least 0.5": (precision, 0.5, 1),
        "AUROC of flipped labels at least 0.85": (order, 0.85, 1),
        "at least half of the lost accuracy is regained": (back / lost, 0.5, np.inf),
    }
    names = [n for n in runs[0]["sets"] if all(n in row["sets"] for row in rows.values())]
    return {
        "command": f"python benchmarks/trust.py {' '.join(rows)} --effort {runs[0]['effort']}"
        + (" --torchcp" if "snaps split" in names else "")
        + f" --draws {','.join(map(str, sorted({run['draw'] for run in runs})))}",
        "protocol": " ".join(str(__doc__).split("\n\n")[1].split(" Runs that are")[0].split()),
        "sources": sorted({run["source"] for run in runs}),
        "versions": versions() | package_versions(["scikit-learn"]),
        "settings": {
            "auto": dataclasses.asdict(AutoOptions(effort=runs[0]["effort"])),
            "labels": LABELS, "flipped": FLIPPED, "coverage": COVERAGE, "bins": BINS, "suspect": SUSPECT,
        },
        "runs": len(runs),
        "draws_everywhere": sorted(everywhere),
        "mean": measured,
        "sets": {n: {k: mean(lambda row, n=n, k=k: row["sets"][n][k]) for k in MEASURES}
                 for n in names},
        "regained": back / lost,
        "by_graph": rows,
        "targets": {
            name: {"measured": value, "met": bool(low <= value <= high)}
            for name, (value, low, high) in targets.items()
        },
    }  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    """Measure graph by graph, if any are named, then summarise all draws in the file."""
    parser = argparse.ArgumentParser(prog="python benchmarks/trust.py")
    parser.add_argument("graphs", nargs="*", help="names or paths, in the order in which they are measured")
    parser.add_argument("--draws", type=numbers, default=tuple(range(20, 40)), help="such as 20-39")
    parser.add_argument("--effort", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--torchcp", action="store_true", help="measure the sets of TorchCP's SNAPS too")
    parser.add_argument("--out", type=Path, default=FOLDER)
    asked = parser.parse_args(arguments)
    name = "trust" if asked.effort == 1 else f"trust-effort-{asked.effort}"
    runs = asked.out / f"{name}.jsonl"
    asked.out.mkdir(parents=True, exist_ok=True)
    tasks = [Task(g, draw, asked.effort, runs, asked.torchcp) for g in asked.graphs for draw in asked.draws]

    def finished(task: Task, result: Any) -> None:
        sys.stdout.write(f"draw {task.draw} of {Path(task.graph).stem}\n")
        sys.stdout.flush()

    run_tasks(_run, tasks, asked.jobs, lambda task, done: None, finished=finished)
    found = summary(read_runs(runs))
    write_json(asked.out / f"{name}.json", found)
    for target, each in found["targets"].items():
        sys.stdout.write(f"{target}: {each['measured']:.3f}{'' if each['met'] else ', missed'}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
