"""Training over several ranks of this machine with torchrun, for measurements and tests."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bvat.graph import Graph
from bvat.parts.folder import write_parts
from bvat.parts.order import locality
from bvat.parts.parts import assign, cut_share
from bvat.training.provenance import graph_fingerprint

PLAIN = {"pretrain": 0, "ramp": 0, "beta": 1.0, "confidence": 0.0}
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
        done = torchrun(ranks, "-m", "bvat.bench.rank_work", str(parts), str(plan))
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


def cut_into(
    graph: Graph, ranks: int, folder: Path, by: Any = "metis", order: Any = "none"
) -> dict[str, Any]:
    """Cut a graph; return what was noted about it."""
    owner = assign(graph, ranks, by)
    how = {"by": by, "cut": cut_share(graph, owner), "order": order}
    place = locality(graph, order)
    return write_parts(graph, owner, folder, fingerprint=graph_fingerprint(graph), how=how, rank=place)


def compare_bits(
    graph: Graph, runs: Runs, ranks: Sequence[int] = (1, 2, 3, 4), by: Any = "metis"
) -> dict[str, dict[str, Any]]:
    """Train over several numbers of ranks; say of each run which give the bits of the first one."""
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
