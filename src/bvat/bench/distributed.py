"""Measurements of training over several ranks: python -m bvat.bench.distributed bits|kills --help.

Results are JSON files; those of results/distributed were made with the commands in docs/large-graphs.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bvat.bench import rank_faults
from bvat.bench.machine import machine
from bvat.data import load, synthetic_graph
from bvat.data.files import write_json
from bvat.distributed.folder import write_parts
from bvat.distributed.parts import assign, cut_share
from bvat.graph import Graph
from bvat.training.provenance import graph_fingerprint

PLAIN = {"pretrain": 0, "ramp": 0, "beta": 1.0, "confidence": 0.0}
METHODS = ("gcn", "consistency", "random", "vat", "sbvat", "obvat", "flag", "grand")
MODELS = ("sgc", "appnp", "sage", "random-propagation", "mlp")

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
                "memory": [float(part["memory"]) for part in each],
            }
        return found


def cut_into(graph: Graph, ranks: int, folder: Path, by: Any = "metis") -> dict[str, Any]:
    """Cut a graph; return what was noted about it."""
    owner = assign(graph, ranks, by)
    how = {"by": by, "cut": cut_share(graph, owner)}
    return write_parts(graph, owner, folder, fingerprint=graph_fingerprint(graph), how=how)


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


def all_runs(key: str, epochs: int, models: bool) -> Runs:
    """Return a run of every method with a GCN, and of every model, dropout on."""
    runs: dict[str, tuple[str, str, int, Mapping[str, Any]]] = {}
    for method in METHODS:
        runs[method] = (key, method, epochs, {} if key else PLAIN)
    runs["obvat-adam"] = (key, "obvat", epochs, {"search": "adam", **({} if key else PLAIN)})
    for model in MODELS if models else ():
        for method in ("vat", "sbvat"):
            runs[f"{model}-{method}"] = ("", method, epochs, {**PLAIN, "model": model})
    return runs


def bits(arguments: argparse.Namespace) -> dict[str, Any]:
    """Compare the bits on several numbers of ranks."""
    results = {}
    for name in arguments.graphs.split(","):
        synthetic = name == "synthetic"
        graph = synthetic_graph(nodes=600, edges=2400, features=120) if synthetic else load(name)
        runs = all_runs("" if synthetic else name, arguments.epochs, models=synthetic)
        results[name] = compare_bits(graph, runs, [int(size) for size in arguments.ranks.split(",")])
    return {"epochs": arguments.epochs, "results": results}


def kills(arguments: argparse.Namespace) -> dict[str, Any]:
    """Kill ranks at random, and stop one."""
    graph = synthetic_graph(nodes=600, edges=2400, features=120)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cut_into(graph, arguments.ranks, folder / "parts", "random")
        options: dict[str, Any] = {"ranks": arguments.ranks, "epochs": arguments.epochs}
        killed = rank_faults.kill_ranks(folder / "parts", folder, times=arguments.times, **options)
        options["epochs"] = 100_000
        stopped = rank_faults.stop_rank(folder / "parts", folder / "stopped", timeout=10, **options)
    return {"killed": killed, "stopped": stopped}


def main() -> None:
    """Run a measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("bits", help="same bits on several numbers of ranks")
    command.add_argument("--graphs", default="synthetic")
    command.add_argument("--ranks", default="1,2,3,4")
    command.add_argument("--epochs", type=int, default=5)
    command.set_defaults(run=bits)
    faults = commands.add_parser("kills", help="ranks that are killed or stopped")
    faults.add_argument("--ranks", type=int, default=2)
    faults.add_argument("--times", type=int, default=20)
    faults.add_argument("--epochs", type=int, default=300)
    faults.set_defaults(run=kills)
    for each in (command, faults):
        each.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    write_json(arguments.out, {**arguments.run(arguments), "machine": machine()})


if __name__ == "__main__":
    main()
