"""Training over several ranks of this machine with torchrun, for measurements and tests.

:func:`train_parts` starts this file once per rank: torchrun ... benchmarks/rank_runs.py PARTS PLAN
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from bvat.engine.ranks import RankEngine
from bvat.graph import Graph
from bvat.parts.folder import write_parts
from bvat.parts.join import join
from bvat.parts.parts import assign, blocks, cut_share
from bvat.training.loop import predict, run_epoch
from bvat.training.memory import current_mb, peak_mb, reset_peak
from bvat.training.provenance import graph_fingerprint
from bvat.training.settings import preset_among
from bvat.training.state import start_training

FROM_THE_START = {"pretrain": 0, "ramp": 0, "beta": 1.0, "confidence": 0.0}
"""Settings with which a regulariser acts on all nodes from the first epoch."""
Runs = Mapping[str, tuple[str, str, int, Mapping[str, Any]]]
"""By name: key of the preset, method, number of epochs, other settings."""


def torchrun(
    ranks: int, *arguments: str, timeout: float = 3600, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Start a module over several ranks of this machine."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
    return subprocess.run([*command, *arguments], timeout=timeout, text=True, capture_output=True, **options)


def train_parts(parts: Path, ranks: int, runs: Runs) -> dict[str, dict[str, Any]]:
    """Train over a folder of parts; return logits in the order of the nodes, and what the ranks measured."""
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.json"
        plan.write_text(json.dumps({"out": folder, "runs": runs}), "utf-8")
        done = torchrun(ranks, __file__, str(parts), str(plan))
        if done.returncode:
            raise RuntimeError(done.stderr[-4000:])
        found = {}
        for name in runs:
            each = [dict(np.load(Path(folder) / f"{name}-rank-{rank}.npz")) for rank in range(ranks)]
            order = np.argsort(np.concatenate([part["nodes"] for part in each]))
            found[name] = {
                "logits": np.concatenate([part["logits"] for part in each])[order],
                "weights": sorted({str(part["weights"]) for part in each}),
                "seconds": float(np.median(each[0]["seconds"])) if each[0]["seconds"].size else None,
                "sent": [float(part["sent"]) for part in each],
                "busy": [float(part["busy"]) for part in each],
                "memory": [float(part["memory"]) for part in each],
            }
        return found


def cut_into(graph: Graph, ranks: int, folder: Path, by: Any = "metis") -> dict[str, Any]:
    """Cut a graph; return the description of the parts."""
    owner = assign(graph, ranks, by)
    how = {"by": by, "cut": cut_share(graph, owner)}
    place = blocks(graph, by)
    return write_parts(graph, owner, folder, fingerprint=graph_fingerprint(graph), how=how, rank=place)


def compare_bits(
    graph: Graph, runs: Runs, ranks: Sequence[int] = (1, 2, 3, 4), by: Any = "metis"
) -> dict[str, dict[str, Any]]:
    """Train over several numbers of ranks; say for each run which numbers give the same bits as the first."""
    answers: dict[str, dict[str, Any]] = {name: {} for name in runs}
    reference: dict[str, dict[str, Any]] = {}
    for size in ranks:
        with tempfile.TemporaryDirectory() as folder:
            cut_into(graph, size, Path(folder) / "parts", by)
            found = train_parts(Path(folder) / "parts", size, runs)
        reference = reference or found
        for name, result in found.items():
            first = reference[name]
            answers[name][str(size)] = {
                "same_weights": result["weights"] == first["weights"] and len(result["weights"]) == 1,
                "same_predictions": bool(np.array_equal(result["logits"], first["logits"])),
                "largest_difference": float(np.abs(result["logits"] - first["logits"]).max()),
            }
    return answers


def measure(graph: Any, settings: Any, epochs: int) -> dict[str, Any]:
    """Train some epochs; return logits of own nodes (n, C), a digest of the weights, times and bytes."""
    ranks = cast(RankEngine, graph.engine)
    state = start_training(graph, settings)
    first = time.perf_counter()
    run_epoch(state)  # compiles
    started, sent = time.perf_counter(), ranks.sent
    times, busy = [], time.process_time()
    for _ in range(epochs - 1):
        before = time.perf_counter()
        run_epoch(state)
        ranks.barrier()
        times.append(time.perf_counter() - before)
    sent, busy = ranks.sent - sent, time.process_time() - busy
    weights = hashlib.sha256()
    for _, tensor in sorted(state.model.state_dict().items()):
        weights.update(tensor.contiguous().numpy().tobytes())
    rows = [{name: value for name, value in row.items() if name != "ms"} for row in state.metrics]
    weights.update(json.dumps(rows).encode())
    return {
        "logits": predict(state.model, graph).numpy(),
        "weights": weights.hexdigest(),
        "seconds": np.array(times),
        "first": started - first,
        "sent": sent / max(1, epochs - 1),
        "busy": busy / max(1, epochs - 1),
    }


def main(parts: str, plan: str) -> None:
    """Do the work of one rank.

    Args:
        parts: the folder of parts.
        plan: a JSON file with ``out``, a folder, and ``runs``. Every rank trains all of them one after
            another and writes ``RUN-rank-R.npz``: own nodes, their logits, and what it measured.
    """
    wanted = json.loads(Path(plan).read_text("utf-8"))
    empty = current_mb()  # of a process that has imported everything
    reset_peak()
    graph = join(Path(parts), 300)
    ranks = cast(RankEngine, graph.engine)
    for name, (key, method, epochs, options) in wanted["runs"].items():
        found = measure(graph, preset_among(key, method, **options), epochs)
        found |= {"nodes": graph.own_nodes.numpy(), "memory": peak_mb() - empty}
        np.savez(Path(wanted["out"]) / f"{name}-rank-{ranks.rank}.npz", **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
