"""What compiled loops gain: the epoch of models that have one, without and with it, in turn, by hidden width.

python benchmarks/kernels.py cora --out results/bench/kernels.json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from bvat.bench.measure import Budget, epoch_action, interleave, machine
from bvat.data import load
from bvat.data.files import write_json
from bvat.store.pool import thread_count
from bvat.training.provenance import versions
from bvat.training.settings import preset, short_name

WIDTHS = (16, 64)
BUDGET = Budget(warmup=2, rounds=100, seconds=4.0, min_rounds=5)
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "GCN": ("none", {}),
    "VAT": ("vat", {}),
    "S-BVAT": ("sbvat", {}),
    "O-BVAT, 10 steps": ("obvat", {"search": "adam", "steps": 10}),
    "FLAG": ("flag", {}),
    "random propagation, 4 passes": ("grand", {"model": "random-propagation", "ramp": 0}),
    "GAT": ("none", {"model": "gat"}),
    "GAT + VAT": ("vat", {"model": "gat"}),
}
"""Title, method, and settings that differ from the preset."""


def measure_kernels(
    source: str, widths: tuple[int, ...] = WIDTHS, budget: Budget = BUDGET
) -> list[dict[str, Any]]:
    """Return the median CPU time of each row and width without and with compiled loops, and their ratio."""
    graph, name = load(source), short_name(source)
    measured = []
    for title, (method, changed) in ROWS.items():
        for width in widths:
            settings = preset(name, method, **changed, hidden=width)
            engines = {"plain": graph.with_engine("tensor"), "compiled": graph}
            actions = {name: epoch_action(each, settings) for name, each in engines.items()}
            times = {way: each.summary() for way, each in interleave(actions, budget).items()}
            plain, compiled = (times[way]["epoch_cpu_ms"] for way in ("plain", "compiled"))
            row = {"row": title, "hidden": width, "plain_ms": plain, "compiled_ms": compiled}
            measured.append({**row, "ratio": plain / compiled})
    return measured


def table(measured: list[dict[str, Any]]) -> str:
    """Return the measurements as a table in Markdown."""
    lines = ["| epoch, ms of CPU time | hidden | tensors | compiled | ratio |", "|---|---|---|---|---|"]
    lines += [
        f"| {row['row']} | {row['hidden']} | {row['plain_ms']:.1f} | {row['compiled_ms']:.1f} "
        f"| {row['ratio']:.2f} |"
        for row in measured
    ]
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("graph")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    with thread_count(1):
        rows = measure_kernels(asked.graph)
        about = {"graph": short_name(asked.graph), "machine": machine(), "versions": versions()}
    write_json(asked.out, {"kernels": rows, **about})
    sys.stdout.write(table(rows) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
