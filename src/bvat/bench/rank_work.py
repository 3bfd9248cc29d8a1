"""What a rank does in a measurement: python -m torch.distributed.run ... -m bvat.bench.rank_work PARTS PLAN.

PLAN is a JSON file with ``out``, a folder, and ``runs``, a list of settings. Every rank trains all of them
one after another and writes ``RUN-rank-R.npz``: own nodes, their logits, and what it measured.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any, cast

import numpy as np

from bvat.engine.ranks import RankEngine
from bvat.engine.world import current
from bvat.parts.join import join
from bvat.training.loop import predict, run_epoch
from bvat.training.memory import current_mb, peak_mb, reset_peak
from bvat.training.settings import preset_among
from bvat.training.state import start_training


def measure(graph: Any, settings: Any, epochs: int) -> dict[str, Any]:
    """Train some epochs; return logits of own nodes (n, C), a digest of the weights, times and bytes."""
    world = cast(RankEngine, current())
    state = start_training(graph, settings)
    first = time.perf_counter()
    run_epoch(state)  # compiles
    started, sent = time.perf_counter(), world.sent
    times, busy = [], time.process_time()
    for _ in range(epochs - 1):
        before = time.perf_counter()
        run_epoch(state)
        world.barrier()
        times.append(time.perf_counter() - before)
    sent, busy = world.sent - sent, time.process_time() - busy
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
    """Do the work of one rank."""
    wanted = json.loads(Path(plan).read_text("utf-8"))
    empty = current_mb()  # of a process that has imported everything
    reset_peak()
    graph = join(Path(parts), 300)
    world = cast(RankEngine, current())
    for name, (key, method, epochs, options) in wanted["runs"].items():
        found = measure(graph, preset_among(key, method, **options), epochs)
        found |= {"nodes": graph.own_nodes.numpy(), "memory": peak_mb() - empty}
        np.savez(Path(wanted["out"]) / f"{name}-rank-{world.rank}.npz", **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
