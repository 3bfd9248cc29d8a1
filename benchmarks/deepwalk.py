"""Time and memory of DeepWalk on a large random graph, compared with gensim's skip-gram on the same walks.

python benchmarks/deepwalk.py --out results/bench/deepwalk.json
python benchmarks/deepwalk.py --gensim-share 0.1    # gensim on a tenth of the walks; needs pip install gensim
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bvat.baselines.deepwalk import LENGTH, WALKS
from bvat.baselines.skipgram import embed
from bvat.baselines.walks import Nodes, walks_from_all
from bvat.bench.measure import machine
from bvat.data.checksums import write_sealed_json
from bvat.training.memory import peak_mb, reset_peak
from bvat.training.provenance import package_versions


def random_adjacency(nodes: int, edges: int, seed: int = 0) -> Any:
    """Return a graph whose degrees are as uneven as those of citations, as scipy CSR."""
    rng = np.random.default_rng(seed)
    ends = (nodes * rng.random((2, 2 * edges)) ** 2).astype(np.int64)
    low, high = ends.min(0), ends.max(0)
    key = np.unique((low * nodes + high)[low != high])
    key = rng.permutation(key)[:edges]
    half = sp.coo_array((np.ones(len(key), np.float32), (key // nodes, key % nodes)), (nodes, nodes))
    return (half + half.T).tocsr()


def measured(action: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return what an action returns, and its seconds by the clock and by the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    found = action()
    return found, {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - processor}


def measure(nodes: int, edges: int, workers: int, gensim_share: float) -> dict[str, Any]:
    """Return the times of walks and skip-gram, the peak memory, and gensim's time if requested."""
    adjacency = random_adjacency(nodes, edges)
    embed(walks_from_all(adjacency[:50, :50], 1, 3, 0), 50, 0)  # compiles
    reset_peak()
    walks, of_walks = measured(lambda: walks_from_all(adjacency, WALKS, LENGTH, 0))
    _, of_skipgram = measured(lambda: embed(walks, nodes, 0))
    result: dict[str, Any] = {
        "graph": {"nodes": nodes, "edges": int(adjacency.nnz // 2)},
        "workers": workers,
        "tokens": int((walks >= 0).sum()),
        "walks": of_walks,
        "skipgram": of_skipgram,
        "peak_mb": peak_mb(),
    }
    if gensim_share:
        result["gensim"] = with_gensim(walks[: int(len(walks) * gensim_share)], workers)
    return {**result, "machine": machine(), "versions": package_versions(("numpy", "numba", "gensim"))}


class Sentences:
    """Walks as gensim reads them; it goes through them more than once."""

    def __init__(self, walks: Nodes) -> None:
        self.walks = walks

    def __iter__(self) -> Iterator[list[str]]:
        for walk in self.walks:
            yield [str(node) for node in walk if node >= 0]


def with_gensim(walks: Nodes, workers: int) -> dict[str, float]:
    """Return the times of gensim's Word2Vec with the same settings."""
    models = import_module("gensim.models")
    _, times = measured(
        lambda: models.Word2Vec(
            Sentences(walks), vector_size=128, window=10, min_count=0, sg=1, sample=0, seed=0,
            hs=1, negative=0, workers=workers, epochs=1,
        )
    )  # fmt: skip
    return {"tokens": int((walks >= 0).sum()), **times}


def main(arguments: list[str]) -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(prog="python benchmarks/deepwalk.py")
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2, help="threads of gensim")
    parser.add_argument("--gensim-share", type=float, default=0.0, help="share of the walks for gensim")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(arguments)
    result = measure(asked.nodes, asked.edges, asked.workers, asked.gensim_share)
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    if asked.out is not None:
        write_sealed_json(asked.out, result)


if __name__ == "__main__":
    main(sys.argv[1:])
