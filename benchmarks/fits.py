"""Processor seconds of one fit of each method and baseline, for the page "Which method when".

python benchmarks/fits.py cora pubmed --out results/bench/fits.json && python docs/which_method.py
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from bvat.baselines.table import BASELINES
from bvat.bench.measure import machine
from bvat.data import load, synthetic_graph
from bvat.data.checksums import read_sealed_json, write_sealed_json
from bvat.store.pool import thread_count
from bvat.training.loop import train
from bvat.training.provenance import versions
from bvat.training.settings import preset, preset_key
from bvat.tuning.variants import Variant

ROWS = (*BASELINES, "monet", "gat", "gpnn", "gcn", "appnp", "vat", "sbvat", "obvat")


def seconds_per_fit(source: str, row: str) -> dict[str, float]:
    """Return the seconds of seed 0 with the preset, by the processor and by the clock, and its accuracy.

    Kernels are compiled before the measurement, on a small graph.
    """
    variant = Variant.parse(row)
    settings = preset(preset_key(source), variant.method, model=variant.model)
    small = synthetic_graph(nodes=60, edges=120, features=20, classes=3, train_per_class=3, val=10, test=20)
    train(small, preset("", variant.method, model=variant.model, epochs=4))
    graph = load(source)
    processor, clock = time.process_time(), time.perf_counter()
    trained = train(graph, settings)
    return {
        "cpu_seconds": time.process_time() - processor,
        "seconds": time.perf_counter() - clock,
        "test": trained.selected["test"],
    }


def main(arguments: list[str]) -> None:
    """Measure the fits that are missing in the file, and write it after each one."""
    parser = argparse.ArgumentParser(prog="python benchmarks/fits.py")
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--out", type=Path, default=Path("results/bench/fits.json"))
    asked = parser.parse_args(arguments)
    found: dict[str, Any] = read_sealed_json(asked.out) if asked.out.exists() else {"fits": {}}
    with thread_count(1):
        for graph in asked.graphs:
            for row in asked.rows.split(","):
                done = found["fits"].setdefault(row, {})
                if graph not in done:
                    done[graph] = seconds_per_fit(graph, row)
                    found |= {"machine": machine(), "versions": versions()}
                    write_sealed_json(asked.out, found)
                    sys.stdout.write(f"{row} on {graph}: {json.dumps(done[graph])}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
