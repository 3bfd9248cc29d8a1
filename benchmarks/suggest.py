"""Labels worth asking for: accuracy after labels that were suggested, and after as many random ones.

Half of the nodes with a known class, drawn at random, are for testing only; the other half may be asked for.
Both start from the same 2 labels per class and get 2 C labels more per step, C the number of classes,
whatever their classes are. The classifier is ``auto`` at effort 1. Random choice goes on to twice the labels,
to see how many the suggestions save. Draws that are in the file are kept when the command is repeated:

    python benchmarks/suggest.py cora citeseer pubmed FILE.npz... --jobs 2
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bvat.baselines.table import AutoOptions
from bvat.data.files import append, write_json
from bvat.graph import Graph
from bvat.store.claim import taken
from bvat.store.pool import ReportProgress, run_tasks
from bvat.training.provenance import package_versions, versions
from bvat.training.statistics import sample
from bvat.trust import suggest as trust
from bvat.tuning.members import Work
from few_labels import DRAWS, _begin, about, numbers, read_runs
from shared_work import fitted, prepared

OUT = Path("results/trust")
BUDGETS = (2, 4, 6, 8, 10)
FURTHER = (12, 16, 20)
"""Labels per class of random choice alone."""
EFFORT = 1

Nodes = NDArray[np.int64]


@lru_cache(maxsize=1)
def compared(source: str) -> torch.Tensor:
    """Return the rows that suggestions compare."""
    return trust.representative_rows(prepared(source, EFFORT).graph)


def start(graph: Graph, draw: int) -> tuple[Nodes, Nodes, Nodes]:
    """Return test nodes, nodes that may be asked for, and the 2 of each class that are labelled first."""
    labels = graph.labels.numpy()
    known = np.random.default_rng([draw, 0]).permutation(np.flatnonzero(labels >= 0))
    test, pool = known[: known.size // 2], known[known.size // 2 :]
    first = [pool[labels[pool] == k][: BUDGETS[0]] for k in range(graph.num_classes)]
    return test, np.sort(pool), np.concatenate(first)


def probabilities(shared: Work, train: Nodes) -> torch.Tensor:
    """Return what ``auto`` predicts from these labels, (N, C)."""
    none = torch.zeros(0, dtype=torch.int64)
    graph = dataclasses.replace(shared.graph, train=torch.from_numpy(np.sort(train)), val=none, test=none)
    return torch.from_numpy(fitted(shared, graph).p)


@dataclass(frozen=True)
class Job:
    """One draw of one graph, which is a name or a path."""

    graph: str
    draw: int
    runs: Path

    def run(self, report: ReportProgress) -> None:
        """Measure what is missing in the file, and add it as one line."""
        shared, rows = prepared(self.graph, EFFORT), compared(self.graph)
        graph = shared.graph
        if any((run["graph"], run["draw"]) == (graph.name, self.draw) for run in read_runs(self.runs)):
            return
        test, pool, first = start(graph, self.draw)
        labels, asked, begun = graph.labels[test], torch.from_numpy(pool), probabilities(shared, first)
        found: dict[str, Any] = {"graph": graph.name, "draw": self.draw, **about(graph)}
        found |= {"source": versions()["source"], "test_nodes": test.size}
        for name in ("random", "suggest"):
            known, p, accuracies, seconds = first, begun, {}, 0.0
            for budget in BUDGETS + (FURTHER if name == "random" else ()):
                count = min(budget * graph.num_classes, pool.size) - known.size
                if budget > BUDGETS[0] and name == "random":
                    rng = np.random.default_rng([self.draw, budget])
                    new = rng.permutation(np.setdiff1d(pool, known))[:count]
                elif budget > BUDGETS[0]:
                    began, given = time.process_time(), torch.from_numpy(known)
                    new = trust.suggest(graph, p, given, count, candidates=asked, rows=rows).nodes.numpy()
                    seconds += time.process_time() - began
                if budget > BUDGETS[0]:
                    known = np.concatenate([known, new])
                    p = probabilities(shared, known)
                accuracies[str(budget)] = 100 * float((p.argmax(1)[test] == labels).double().mean())
            found[name] = {"accuracy": accuracies, "cpu_seconds": round(seconds, 2)}
            report(len(accuracies))
        with taken(self.runs.with_suffix(".lock"), wait=True):
            append(self.runs, _begin(self.runs) + json.dumps(found, allow_nan=False) + "\n")


def summarised(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return means by graph, paired differences and the targets, with what they were made by."""
    graphs = {
        graph: [run for run in runs if run["graph"] == graph]
        for graph in dict.fromkeys(run["graph"] for run in runs)
    }
    by_graph: dict[str, Any] = {}
    for graph, own in graphs.items():
        mean = {
            name: {b: fmean(run[name]["accuracy"][b] for run in own) for b in own[0][name]["accuracy"]}
            for name in ("random", "suggest")
        }
        at = str(BUDGETS[-1])
        difference = [run["suggest"]["accuracy"][at] - run["random"]["accuracy"][at] for run in own]
        half = {b: mean["suggest"][str(b)] >= mean["random"][str(2 * b)] for b in BUDGETS[1:]}
        by_graph[graph] = {
            "draws": sorted(run["draw"] for run in own),
            **mean,
            "difference": sample(difference).as_dict(),
            "half_the_labels": half,
        }
    gains = {graph: each["difference"]["mean"] for graph, each in by_graph.items()}
    halves = {
        f"{b} for {2 * b} per class": [g for g, each in by_graph.items() if each["half_the_labels"][b]]
        for b in BUDGETS[1:]
    }
    halves["at one of these numbers"] = [g for g in by_graph if any(g in found for found in halves.values())]
    return {
        "command": f"python benchmarks/suggest.py {' '.join(graphs)} "
        f"--draws {','.join(map(str, sorted({run['draw'] for run in runs})))}",
        "versions": versions() | package_versions(["scikit-learn"]),
        "sources": sorted({run["source"] for run in runs}),
        "settings": {
            "auto": dataclasses.asdict(AutoOptions(effort=EFFORT)),
            "penalty": trust.PENALTY,
            "steps": BUDGETS,
        },
        "protocol": " ".join(str(__doc__).split("\n\n")[1].split()),
        "by_graph": by_graph,
        "gain_at_10": fmean(gains.values()),
        "worst_gain_at_10": min(gains.values()),
        "graphs_with_half_the_labels": halves,
        "targets": {
            "at least 2 points above random choice at 10 labels per class": fmean(gains.values()) >= 2,
            "no graph more than 1 point below": min(gains.values()) >= -1,
        }
        | {f"half the labels on at least 4 graphs, {at}": len(found) >= 4 for at, found in halves.items()},
    }


def _run(job: Job, report: ReportProgress) -> None:
    job.run(report)


def main(arguments: Sequence[str]) -> None:
    """Measure graph by graph, if any are named, then summarise all draws in the file."""
    parser = argparse.ArgumentParser(prog="python benchmarks/suggest.py")
    parser.add_argument("graphs", nargs="*", help="names or paths, in the order in which they are measured")
    parser.add_argument("--draws", type=numbers, default=DRAWS, help="such as 20-29")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    runs = asked.out / "suggest.jsonl"

    def finished(job: Job, result: Any) -> None:
        sys.stdout.write(f"draw {job.draw} of {Path(job.graph).stem}\n")
        sys.stdout.flush()

    jobs = [Job(graph, draw, runs) for graph in asked.graphs for draw in asked.draws]
    run_tasks(_run, jobs, asked.jobs, lambda job, done: None, finished=finished)
    write_json(asked.out / "suggest.json", summarised(read_runs(runs)))


if __name__ == "__main__":
    main(sys.argv[1:])
