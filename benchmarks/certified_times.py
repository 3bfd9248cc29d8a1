"""CPU seconds and memory of audits and certificates, for a GCN of 64 units with the defaults for any graph.

python benchmarks/certified_times.py cora pubmed pages --out results/certified/times.json

``pages`` is a synthetic graph of 22,470 nodes with 171,000 edges, 4,714 sparse features and 4 classes, whose
degrees are very unequal. Everything runs with one thread. The audit is that of
all nodes by ``bvat audit`` in a process of its own; "importing" is what Python and torch cost before.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

import bvat
from bvat.audit import audit, certify
from bvat.audit.certify import certificates
from bvat.data import load
from bvat.data.files import write_json
from bvat.graph import Graph
from bvat.inference import open_run
from bvat.runs.run import RunOptions
from bvat.training.provenance import versions
from bvat.training.settings import preset


def pages(nodes: int = 22_470, edges: int = 171_000, features: int = 4_714, seed: int = 0) -> Graph:
    """Return a graph whose degrees are log-normal, with a standard deviation of 1.7 times their mean."""
    about = bvat.synthetic_graph(nodes=nodes, edges=0, features=features, words_per_node=14, seed=seed)
    random = np.random.default_rng(seed)
    weights = random.lognormal(sigma=np.log(1 + 1.7**2) ** 0.5, size=nodes)
    labels = about.labels.numpy()
    pairs = random.choice(nodes, size=(4 * edges, 2), p=weights / weights.sum())
    inside = labels[pairs[:, 0]] == labels[pairs[:, 1]]
    pairs = np.sort(pairs[(inside | (random.random(len(pairs)) < 0.1)) & (pairs[:, 0] != pairs[:, 1])], 1)
    drawn = random.permutation(np.unique(pairs, axis=0))[:edges]
    adjacency = sp.coo_array((np.ones(len(drawn)), (drawn[:, 0], drawn[:, 1])), shape=(nodes, nodes))
    x = about.features.to_scipy()
    return Graph.build(x, adjacency, labels, train=about.train, val=about.val, test=about.test, name="pages")


def process(*command: str) -> dict[str, float]:
    """Return the CPU seconds and the peak memory of Python with these arguments."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    number = os.posix_spawn(sys.executable, [sys.executable, *command], environment)
    _, status, used = os.wait4(number, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return {"seconds": used.ru_utime + used.ru_stime, "peak_mib": used.ru_maxrss / 1024}


def seconds(measure: Any, repeats: int = 3) -> float:
    """Return the least CPU seconds of a few calls, or of one that takes long."""
    taken: list[float] = []
    while len(taken) < repeats and sum(taken) < 2:
        begin = time.process_time()
        measure()
        taken.append(time.process_time() - begin)
    return min(taken)


def measure(source: str) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each measurement."""
    graph = pages() if source == "pages" else load(source)
    yield "sizes", {"nodes": graph.num_nodes, "edges": graph.num_edges, "features": graph.num_features}
    with TemporaryDirectory() as folder:
        path, out = f"{folder}/run", ("--out", f"{folder}/audit.csv")
        bvat.run(graph, preset("", "none", hidden=64), folder=path, options=RunOptions(page=False))
        yield "command", process("-m", "bvat", "audit", path, *out)
        run = open_run(path)
        given = run.graph()
        model = run.classifier(given, 0).models[0]
        yield "certify_seconds", seconds(lambda: certify(model, given))
        yield "audit_seconds", seconds(lambda: audit(model, given))
        yield "all_budgets_seconds", seconds(lambda: certificates(model, given))
        yield "certified_audit_seconds", seconds(lambda: audit(model, given, certify=True))
        yield "command_with_certificates", process("-m", "bvat", "audit", path, *out, "--certify")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = json.loads(asked.out.read_text("utf-8")) if asked.out.exists() else {}
    importing = process("-c", "import bvat.runs.audits, bvat.runs.run")
    found = {"graphs": {}} | found | {"importing": importing, "versions": versions()}
    for source in asked.graphs:
        row = found["graphs"][source] = {}
        for name, value in measure(source):
            row[name] = value
            sys.stdout.write(f"{source} {name} {value}\n")
            sys.stdout.flush()
            write_json(asked.out, found)


if __name__ == "__main__":
    main()
