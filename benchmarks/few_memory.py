"""Memory of ``auto`` beside that of a GCN, each in its own process, and neighbours of many nodes.

python benchmarks/few_memory.py cora pubmed FILE.npz... --effort 2
python benchmarks/few_memory.py --nodes 1000000
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

OUT = Path("results/few-labels/memory.json")
LABELS = 20


def fitted_memory(source: str, effort: int) -> dict[str, Any]:
    """Return the peak memory of a fit, of the process and above that of a small fit before, in MiB.

    Effort 0 is a GCN.
    """
    import torch

    from bvat.baselines.table import AutoOptions
    from bvat.data import load, synthetic_graph
    from bvat.data.splits import resplit
    from bvat.graph import Graph
    from bvat.training.loop import train
    from bvat.training.memory import current_mb, give_back, peak_mb, reset_peak
    from bvat.tuning import auto
    from few_labels import gcn_settings

    def fit(graph: Graph) -> Any:
        if effort:
            return auto.fit(graph, 0, AutoOptions(effort=effort))
        return train(graph, gcn_settings())

    torch.set_num_threads(1)
    small = synthetic_graph(nodes=300, edges=600, features=200, classes=3)  # imports and compiles everything
    fit(resplit(small, LABELS, 0, 0))
    give_back()
    baseline = current_mb()
    graph = resplit(load(source), LABELS, 0, 0)
    give_back()
    there = current_mb()
    reset_peak()
    fit(graph)
    peak = peak_mb()
    found = {"graph": graph.name, "graph_mb": there - baseline}
    return {**found, "peak_mb": peak - baseline, "process_mb": peak}


def neighbours_memory(nodes: int, columns: int = 64, k: int = 10) -> dict[str, Any]:
    """Return seconds and peak MiB of the neighbours of nodes in clusters, and how many are the true ones."""
    import numpy as np
    import torch

    from bvat.graph.neighbours import nearest_nodes, unit_rows
    from bvat.training.memory import current_mb, peak_mb, reset_peak

    rng = np.random.default_rng(0)
    nearest_nodes(torch.randn(500, columns), k, exact=0)  # compiles
    baseline = current_mb()
    centres = rng.normal(size=(200, columns)).astype(np.float32)
    rows = rng.normal(size=(nodes, columns)).astype(np.float32)
    rows += 1.5 * centres[rng.integers(0, 200, nodes)]
    latent = unit_rows(torch.from_numpy(rows))
    reset_peak()
    started, spent = time.perf_counter(), time.process_time()
    found = nearest_nodes(latent, k)
    seconds, spent = time.perf_counter() - started, time.process_time() - spent
    peak = peak_mb() - baseline
    right = []
    for node in rng.integers(0, nodes, 200):
        scores = latent @ latent[node]
        scores[node] = -2
        best = set(scores.topk(k).indices.tolist())
        right.append(len(best & set(found.indices[found.indptr[node] : found.indptr[node + 1]].tolist())) / k)
    return {
        "nodes": nodes,
        "columns": columns,
        "k": k,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(spent, 1),
        "peak_mb": round(peak),
        "rows_mb": round(rows.nbytes / 2**20),
        "edges": found.nnz // 2,
        "recall": float(np.mean(right)),
    }


def in_process(*arguments: Any) -> dict[str, Any]:
    """Measure in a new process."""
    command = [sys.executable, __file__, "--child", json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the process ended with code {done.returncode}: {done.stderr[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python benchmarks/few_memory.py")
    parser.add_argument("graphs", nargs="*", help="names or paths")
    parser.add_argument("--effort", type=int, default=2)
    parser.add_argument("--nodes", type=int, help="find the neighbours of so many nodes")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.child:
        given = json.loads(asked.child)
        measure = neighbours_memory if isinstance(given[0], int) else fitted_memory
        sys.stdout.write(json.dumps(measure(*given)) + "\n")
        return
    from bvat.data.files import write_json
    from bvat.training.provenance import versions

    known: dict[str, Any] = json.loads(asked.out.read_text("utf-8")) if asked.out.exists() else {}
    for source in asked.graphs:
        gcn, auto = in_process(source, 0), in_process(source, asked.effort)
        found = {"graph_mb": gcn["graph_mb"], "gcn_mb": gcn["peak_mb"], "auto_mb": auto["peak_mb"]}
        found |= {"gcn_process_mb": gcn["process_mb"], "auto_process_mb": auto["process_mb"]}
        known.setdefault("graphs", {})[gcn["graph"]] = found | {"ratio": auto["peak_mb"] / gcn["peak_mb"]}
        sys.stdout.write(f"{gcn['graph']}: {known['graphs'][gcn['graph']]}\n")
    if asked.nodes:
        known["neighbours"] = in_process(asked.nodes)
    write_json(asked.out, {**known, "labels": LABELS, "effort": asked.effort, "versions": versions()})


if __name__ == "__main__":
    main(sys.argv[1:])
