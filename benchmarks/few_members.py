"""What networks add to ``auto`` with few labels: the ensemble with each of them, on the same labels.

Every network is trained once per draw, with the labels alone, and joins those of effort 2 in turn:

    python benchmarks/few_members.py cora citeseer FILE.npz... --labels 5,20 --draws 0-2
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from bvat.baselines.table import AutoOptions
from bvat.data import load
from bvat.data.checksums import read_sealed_json, write_sealed_json
from bvat.data.splits import resplit
from bvat.graph import Graph
from bvat.models.ensemble import LINEAR
from bvat.training.provenance import versions
from bvat.training.statistics import sample
from bvat.tuning.auto import fitted_members
from bvat.tuning.members import Work
from bvat.tuning.networks import NETWORKS
from few_labels import numbers

NETWORK = NETWORKS[2]
"""The networks of effort 2, which others join."""
ALL = "all"
"""Stands for all numbers of labels together."""
ALONE = ("vat", "sbvat", "obvat", "appnp/vat", "random-propagation", "random-propagation/grand")
"""What joins them, one at a time."""


def ensembles(alone: Sequence[str] = ALONE) -> dict[str, tuple[str, ...]]:
    """Return the networks of each ensemble that is measured."""
    return {
        "none": (),
        "effort 2": NETWORK,
        **{name: (*NETWORK, name) for name in alone},
        "effort 3": NETWORKS[3],
        "effort 4": NETWORKS[4],
    }


def measure(graph: Graph, sets: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return accuracy, processor seconds and weights of the networks of every ensemble."""
    work = Work.on(graph, AutoOptions(effort=4))
    trained: dict[str, tuple[Tensor, float]] = {}
    found = {}
    for title, names in sets.items():
        seconds = 0.0

        def once(name: str, compute: Callable[[], Tensor]) -> Tensor:
            nonlocal seconds
            if name not in trained:
                started = time.process_time()
                trained[name] = compute(), time.process_time() - started
            seconds += trained[name][1]
            return trained[name][0]

        with patch.dict(NETWORKS, {4: names}), threadpool_limits(1, "blas"):
            members, mixture = fitted_members(work, 0, once)
        predicted = torch.from_numpy(mixture.probabilities(work, members).argmax(1))
        right = predicted[graph.test] == graph.labels[graph.test]
        found[title] = {
            "accuracy": 100 * float(right.double().mean()),
            "training_cpu_seconds": round(seconds, 2),
            "weights": {
                name.rpartition("-")[0]: weight
                for name, weight in mixture.weights.items()
                if name not in LINEAR
            },
        }
    return found


def summarised(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return by labels per class, and for all runs, the paired gains of each ensemble over effort 2."""
    found: dict[str, Any] = {}
    for count in (*sorted({run["labels"] for run in runs}), ALL):
        own = [run["ensembles"] for run in runs if count in (run["labels"], ALL)]
        base = [run["effort 2"]["accuracy"] for run in own]
        rows = found[str(count)] = {}
        for title in own[0]:
            each = [run[title] for run in own]
            gains = [row["accuracy"] - b for row, b in zip(each, base, strict=True)]
            rows[title] = {
                "gain": sample(gains).as_dict(),
                "training_cpu_seconds": fmean(row["training_cpu_seconds"] for row in each),
                "weights": {name: fmean(row["weights"][name] for row in each) for name in each[0]["weights"]},
            }
    return found


def write(path: Path, runs: Sequence[dict[str, Any]], script: str) -> None:
    """Write the runs with their summary and the command that measures them."""
    graphs, labels, draws = (sorted({run[name] for run in runs}) for name in ("graph", "labels", "draw"))
    options = f"--labels {','.join(map(str, labels))} --draws {','.join(map(str, draws))}"
    command = f"python benchmarks/{script} {' '.join(graphs)} {options}"
    content = {"command": command, "versions": versions(), "labels": summarised(runs), "runs": list(runs)}
    write_sealed_json(path, content)


def main(
    arguments: Sequence[str],
    script: str = "few_members.py",
    sets: dict[str, tuple[str, ...]] | None = None,
    out: Path = Path("results/few-labels/members.json"),
) -> None:
    """Measure what is missing in the file, draw by draw, and write it after each one."""
    parser = argparse.ArgumentParser(prog=f"python benchmarks/{script}")
    parser.add_argument("graphs", nargs="+", help="names or paths")
    parser.add_argument("--labels", type=numbers, default=(5, 20), help="per class, such as 5,20")
    parser.add_argument("--draws", type=numbers, default=(0, 1, 2), help="such as 0-2")
    parser.add_argument("--out", type=Path, default=out)
    asked = parser.parse_args(arguments)
    runs: list[dict[str, Any]] = read_sealed_json(asked.out)["runs"] if asked.out.exists() else []
    done = {(run["graph"], run["labels"], run["draw"]) for run in runs}
    for draw in asked.draws:
        for source in asked.graphs:
            graph = load(source)
            for count in asked.labels:
                if (graph.name, count, draw) in done:
                    continue
                found = measure(resplit(graph, count, 0, draw), sets or ensembles())
                about = {"graph": graph.name, "labels": count, "draw": draw, "source": versions()["source"]}
                runs.append({**about, "ensembles": found})
                write(asked.out, runs, script)
                sys.stdout.write(f"draw {draw} of {graph.name}, {count} labels per class\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
