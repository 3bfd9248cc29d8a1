"""Measurements of training over several ranks: python benchmarks/ranks.py --help.

Results are JSON files; those of results/distributed were made with the commands in docs/large-graphs.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rank_faults
import rank_speed
from bvat.bench.measure import machine
from bvat.data import load, synthetic_graph
from bvat.data.files import write_json
from rank_runs import FROM_THE_START, Runs, compare_bits, cut_into

METHODS = ("none", "consistency", "random", "vat", "sbvat", "obvat", "flag", "grand")
MODELS = ("sgc", "appnp", "sage", "random-propagation", "mlp")


def all_runs(key: str, epochs: int, models: bool) -> Runs:
    """Return a run of every method with a GCN, and of every model, dropout on."""
    runs: dict[str, tuple[str, str, int, Mapping[str, Any]]] = {}
    options = {} if key else FROM_THE_START
    for name in METHODS:
        runs[name] = (key, name, epochs, options)
    runs["obvat-adam"] = (key, "obvat", epochs, {"search": "adam", **options})
    for model in MODELS if models else ():
        for method in ("vat", "sbvat"):
            runs[f"{model}-{method}"] = ("", method, epochs, {**FROM_THE_START, "model": model})
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
        more = {"times": arguments.times, "seed": arguments.seed}
        killed = rank_faults.kill_ranks(folder / "parts", folder, **more, **options)
        options["epochs"] = 100_000
        stopped = rank_faults.stop_rank(folder / "parts", folder / "stopped", timeout=10, **options)
    return {"killed": killed, "stopped": stopped}


def speed(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure time, memory and bytes over one and two ranks, and the halos of METIS and random parts."""
    nodes, edges = int(arguments.nodes), int(arguments.edges)
    with tempfile.TemporaryDirectory() as folder:
        found = rank_speed.speed(Path(folder), nodes, edges, arguments.epochs)
    smaller = rank_speed.community_graph(nodes // 10, edges // 10)
    return {**found, "halos": [rank_speed.halos(smaller, parts) for parts in (2, 4, 8)]}


def growth(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure how O-BVAT's epoch grows with the number of edges."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = [int(float(size)) for size in arguments.sizes.split(",")]
        return rank_speed.growth(Path(folder), sizes, arguments.epochs)


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
    faults.add_argument("--epochs", type=int, default=60)
    faults.add_argument("--seed", type=int, default=0)
    faults.set_defaults(run=kills)
    times = commands.add_parser("speed", help="time, memory and bytes of an epoch on one and two ranks")
    times.add_argument("--nodes", type=float, default=1e6)
    times.add_argument("--edges", type=float, default=1e7)
    times.add_argument("--epochs", type=int, default=4)
    times.set_defaults(run=speed)
    grows = commands.add_parser("growth", help="exponent of an epoch in the number of edges")
    grows.add_argument("--sizes", default="1e5,1e6,1e7")
    grows.add_argument("--epochs", type=int, default=4)
    grows.set_defaults(run=growth)
    for each in (command, faults, times, grows):
        each.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    write_json(arguments.out, {**arguments.run(arguments), "machine": machine()})


if __name__ == "__main__":
    main()
