"""One measurement in its own process, so that the peak memory is that of the measurement alone.

The parent calls :func:`run_cell`; the child reads the cell as JSON from standard input and writes the
result as JSON to standard output (``python -m bvat.bench.cell``).
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Any

from bvat.bench.plan import Budget


@dataclass(frozen=True)
class Cell:
    """What to train and measure; ``source`` is a data set or the arguments of ``synthetic_graph``."""

    source: str | dict[str, Any]
    settings: dict[str, Any]
    budget: Budget


def run_cell(cell: Cell) -> dict[str, Any]:
    """Measure in a new process; return ``{"reason": text}`` if that process fails.

    Returns:
        the times of :meth:`Times.summary`; ``peak_mb``, the peak memory during training minus what the
        process held before it read the graph; ``process_peak_mb``, the peak memory of the process from start
        to end; ``sizes``, see :class:`bvat.bench.cost.Sizes`; ``settings``, as given.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-m", "bvat.bench.cell"],
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


def measure(cell: Cell) -> dict[str, Any]:
    """Measure a cell in this process."""
    import torch

    from bvat.bench.cost import Sizes
    from bvat.bench.epochs import epoch_action
    from bvat.bench.timing import interleave
    from bvat.data import load, synthetic_graph
    from bvat.training.memory import current_mb, peak_mb, reset_peak
    from bvat.training.settings import Settings

    torch.set_num_threads(1)
    settings = Settings(**cell.settings)
    # kernels and libraries loaded on first use belong to the process, not to this graph
    small = settings.replace(hidden=16, **({"count": 5} if settings.method == "sbvat" else {}))
    few = synthetic_graph(nodes=200, edges=400, features=40, classes=4, train_per_class=5)
    interleave({"": epoch_action(few, small)}, Budget(warmup=1, rounds=1, min_rounds=1))
    baseline = current_mb()
    graph = synthetic_graph(**cell.source) if isinstance(cell.source, dict) else load(cell.source)
    highest = peak_mb()
    reset_peak()
    times = interleave({"": epoch_action(graph, settings)}, cell.budget)[""]
    peak = peak_mb()
    return {
        **times.summary(),
        "peak_mb": max(0.0, peak - baseline),
        "process_peak_mb": max(highest, peak),
        "sizes": asdict(Sizes.of(graph, settings)),
        "settings": cell.settings,
    }


def main() -> None:
    """Read a cell from standard input, measure it and write the result to standard output."""
    given = json.load(sys.stdin)
    cell = Cell(given["source"], given["settings"], Budget(**given["budget"]))
    sys.stdout.write(json.dumps(measure(cell)) + "\n")


if __name__ == "__main__":
    main()
