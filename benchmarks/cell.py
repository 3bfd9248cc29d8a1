"""One measurement in its own process, so that the peak memory is that of the measurement alone.

The parent calls :func:`run_cell`; the child reads the cell as JSON from standard input and writes the
result as JSON to standard output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from bvat.bench.measure import Budget, settings_of


@dataclass(frozen=True)
class Cell:
    """What to train and measure: a row of the benchmark on a graph, with the presets of ``dataset``.

    Args:
        source: a data set, a file, or the arguments of ``synthetic_graph``.
        changes: settings that differ from those of the row.
    """

    source: str | dict[str, Any]
    dataset: str
    method: str
    budget: Budget
    changes: dict[str, Any] = field(default_factory=dict)


def run_cell(cell: Cell) -> dict[str, Any]:
    """Measure in a new process; return ``{"reason": text}`` if that process fails.

    Returns:
        the times of :meth:`Times.summary`; ``peak_mb``, the peak memory during training minus what the
        process held before it read the graph; ``process_peak_mb``, the peak memory of the process from start
        to end; ``entries``, the numbers stored in X and Â.
    """
    done = subprocess.run(
        [sys.executable, "-P", __file__],
        input=json.dumps(asdict(cell)),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        why = "killed, out of memory?" if done.returncode < 0 else last
        return {"reason": f"the process ended with code {done.returncode} ({why})"}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def run_cells(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Measure the memory of cells, several at a time: memory does not depend on what else runs.

    There is at most one process per core, and at most four, because memory is limited.
    """
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(run_cell, cells))


def measure(cell: Cell) -> dict[str, Any]:
    import torch

    from bvat.bench.measure import epoch_action, interleave
    from bvat.data import load, synthetic_graph
    from bvat.training.memory import current_mb, peak_mb, reset_peak

    torch.set_num_threads(1)
    # kernels and libraries loaded on first use belong to the process, not to this graph
    few = synthetic_graph(nodes=200, edges=400, features=40, classes=4, train_per_class=5)
    small = settings_of(cell.dataset, cell.method, **{**cell.changes, "hidden": 16})
    interleave({"": epoch_action(few, small)}, Budget(warmup=1, rounds=1, min_rounds=1))
    baseline = current_mb()
    graph = synthetic_graph(**cell.source) if isinstance(cell.source, dict) else load(cell.source)
    highest = peak_mb()
    reset_peak()
    settings = settings_of(cell.dataset, cell.method, **cell.changes)
    times = interleave({"": epoch_action(graph, settings)}, cell.budget)[""]
    peak = peak_mb()
    return {
        **times.summary(),
        "peak_mb": max(0.0, peak - baseline),
        "process_peak_mb": max(highest, peak),
        "entries": {"x": graph.features.nnz, "a": graph.propagation.nnz},
    }


def main() -> None:
    given = json.load(sys.stdin)
    cell = Cell(**{**given, "budget": Budget(**given["budget"])})
    sys.stdout.write(json.dumps(measure(cell)) + "\n")


if __name__ == "__main__":
    main()
