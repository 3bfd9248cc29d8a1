"""Seconds that ``bvat review``, ``suggest`` and ``explain`` take on a graph with 22,470 nodes.

The graph is synthetic, of the size of the Facebook page-page graph: 4 classes, 171,002 edges, 4,714 sparse
features, of which a node has about 14; 20 labels per class. The commands read a run of ``auto``, each in a
process of its own, so that seconds are those that someone waits, with the start of Python:

    python benchmarks/trust_times.py
"""

from __future__ import annotations

import dataclasses
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import bvat
from bvat.bench.measure import machine
from bvat.data.files import write_json
from bvat.graph import UNKNOWN, Graph
from bvat.training.provenance import versions

OUT = Path("results/trust/times.json")
NODES, EDGES, FEATURES, CLASSES, LABELS = 22_470, 171_002, 4_714, 4, 20
MOST = 20.0
"""Seconds that each command may take."""
COMMANDS = {
    "review": ("review",),
    "suggest": ("suggest", "--count", "50"),
    "explain": ("explain", "--node", "7"),
}


def labelled_graph(nodes: int = NODES, edges: int = EDGES, features: int = FEATURES) -> Graph:
    """Return a graph whose labels are unknown but for those of the training nodes."""
    drawn = bvat.synthetic_graph(nodes, edges, features, CLASSES, train_per_class=LABELS, val=0, test=0)
    labels = torch.full_like(drawn.labels, UNKNOWN)
    labels[drawn.train] = drawn.labels[drawn.train]
    return dataclasses.replace(drawn, labels=labels)


def seconds_of(run: Path) -> dict[str, dict[str, float]]:
    """Return by command how long it took, and how long processors worked for it."""
    found = {}
    for name, (command, *more) in COMMANDS.items():
        began, before = time.perf_counter(), _processor()
        subprocess.run(
            [sys.executable, "-m", "bvat", command, str(run), *more], check=True, stdout=subprocess.DEVNULL
        )
        found[name] = {"seconds": time.perf_counter() - began, "cpu_seconds": _processor() - before}
    return found


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(graph: Graph, effort: int = 1) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        bvat.run(graph, "auto", folder=run, effort=effort)
        return {
            "graph": repr(graph),
            "effort": effort,
            "load": os.getloadavg()[0],
            "most": MOST,
            "commands": seconds_of(run),
            "machine": machine(),
            "versions": versions(),
        }


def main(arguments: Sequence[str]) -> None:
    if arguments:
        sys.exit("usage: python benchmarks/trust_times.py")
    found = measure(labelled_graph())
    write_json(OUT, found)
    for name, each in found["commands"].items():
        sys.stdout.write(f"{name}: {each['seconds']:.1f} s, {each['cpu_seconds']:.1f} s of processors\n")


if __name__ == "__main__":
    main(sys.argv[1:])
