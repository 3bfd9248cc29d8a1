"""How far an epoch is from what the machine could do.

python benchmarks/limit.py cora citeseer pubmed nell --growth results/bench/growth.json \\
    --out results/bench/limit.json

The limit of an epoch is the longer of two times: its bytes (see cost.py) at the measured memory bandwidth,
and its flops at the measured rate of a dense product. It is reported together with the time of the sparse
products alone. Small graphs stay in the caches, which are faster than memory (``cache_gb_s``): their limit is
even lower.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from bvat.bench.measure import ROWS, Budget, interleave, machine, measure_methods, settings_of
from bvat.data import load
from bvat.data.checksums import read_sealed_json
from bvat.data.files import write_json
from bvat.graph import Graph
from bvat.store.pool import thread_count
from bvat.training.provenance import versions
from bvat.training.settings import Settings, short_name
from cost import Sizes, cost_of, counts_of

BUDGET = Budget(seconds=30.0)
LARGE, SMALL = 2**25, 2**14
"""Numbers in an array that fits into no cache (128 MiB), and in one that fits into any (64 KiB)."""


def machine_rates(large: int = LARGE, repeats: int = 7) -> dict[str, float]:
    """Return the best of several measurements: GB/s of copy and triad, in memory and cache, and GFLOP/s."""
    copy, triad = _bandwidth(large, repeats)
    cached = max(_bandwidth(SMALL, 20 * repeats))
    a = torch.rand(1024, 1024)
    out = torch.empty_like(a)
    product = _best(lambda: torch.mm(a, a, out=out), repeats)
    return {
        "copy_gb_s": copy,
        "triad_gb_s": triad,
        "memory_gb_s": max(copy, triad),
        "cache_gb_s": cached,
        "gflop_s": 2 * 1024**3 / product / 1e9,
    }


def limit_of(
    sizes: Sizes, settings: Settings, epoch_ms: float, rates: dict[str, float]
) -> dict[str, Any] | None:
    """Return bytes, flops, the limit in ms and its share of the epoch; None if the cost is unknown."""
    counts = counts_of(settings)
    if counts is None:
        return None
    cost = cost_of(sizes, counts)
    by_bytes = cost.bytes / rates["memory_gb_s"] / 1e6
    by_flops = cost.flops / rates["gflop_s"] / 1e6
    return {
        "bytes": cost.bytes,
        "flops": cost.flops,
        "bytes_ms": by_bytes,
        "flops_ms": by_flops,
        "limit_ms": max(by_bytes, by_flops),
        "epoch_ms": epoch_ms,
        "fraction": max(by_bytes, by_flops) / epoch_ms,
    }


def measure_limit(
    source: str, rates: dict[str, float], rows: tuple[str, ...] = tuple(ROWS), budget: Budget = BUDGET
) -> dict[str, Any]:
    """Compare the epochs on one graph with the limit and with their sparse products alone.

    Args:
        source: a data set or a file.
        rates: what :func:`machine_rates` returned.
        rows: of :data:`bvat.bench.plan.ROWS`; those whose cost is unknown are left out.
        budget: how long to measure.

    Returns:
        ``{"sizes": ..., "product_ms": {kind: ms}, "methods": {row: see limit_of, and "products_ms" and
        "products_fraction"}}``.
    """
    graph, name = load(source), short_name(source)
    settings = {row: settings_of(name, row) for row in rows}
    known = [row for row in rows if counts_of(settings[row]) is not None]
    measured = measure_methods(graph, name, known, budget)
    sizes = Sizes.of(graph, settings["gcn"])
    product_ms = measure_products(graph, sizes, budget)
    found: dict[str, Any] = {}
    for row in known:
        limit = limit_of(sizes, settings[row], measured[row]["epoch_ms"], rates)
        counts = counts_of(settings[row])
        assert limit is not None
        assert counts is not None
        alone = sum(number * product_ms[kind] for kind, number in counts.products().items())
        found[row] = {**limit, "products_ms": alone, "products_fraction": alone / limit["epoch_ms"]}
    return {"sizes": asdict(sizes), "product_ms": product_ms, "methods": found}


def limits_of_growth(path: Path, rates: dict[str, float]) -> list[dict[str, Any]]:
    """Compare the points of growth.json along the edges with the limit: large ones do not fit any cache."""
    rows = []
    for point in read_sealed_json(path)["points"]:
        sizes = Sizes(**{name: point[name] for name in ("nodes", "features", "hidden", "classes")},
                      nnz_x=point["entries"]["x"], nnz_a=point["entries"]["a"])  # fmt: skip
        settings = settings_of("synthetic", point["method"], hidden=point["hidden"])
        row = limit_of(sizes, settings, point["epoch_ms"], rates) if point["axis"] == "edges" else None
        if row is not None:
            rows.append({"method": point["method"], "nodes": point["nodes"], "edges": point["edges"], **row})
    return rows


def measure_products(graph: Graph, sizes: Sizes, budget: Budget) -> dict[str, float]:
    """Return the median milliseconds of Â times (N, H) and (N, w), X times (D, H), Xᵀ times (N, H)."""
    x, a = graph.features, graph.propagation
    by_node, narrow = torch.rand(sizes.nodes, sizes.hidden), torch.rand(sizes.nodes, sizes.narrow)
    by_feature = torch.rand(sizes.features, sizes.hidden)
    products = {
        "a_hidden": lambda: a.product(by_node),
        "a_narrow": lambda: a.product(narrow),
        "x": lambda: x.product(by_feature),
        "xt": lambda: x.transposed_product(by_node),
    }
    times = interleave({name: _no_part(product) for name, product in products.items()}, budget)
    return {name: each.summary()["epoch_ms"] for name, each in times.items()}


def _no_part(call: Callable[[], Any]) -> Callable[[], float]:
    def action() -> float:
        call()
        return 0.0

    return action


def _bandwidth(size: int, repeats: int) -> tuple[float, float]:
    """Return GB/s of ``c = a`` and of ``c = a + 2 b`` on arrays of ``size`` numbers, reads and writes."""
    a, b, c = torch.rand(size), torch.rand(size), torch.zeros(size)
    copy = _best(lambda: c.copy_(a), repeats)
    triad = _best(lambda: torch.add(a, b, alpha=2, out=c), repeats)
    return 8 * size / copy / 1e9, 12 * size / triad / 1e9


def _best(call: Callable[[], Any], repeats: int) -> float:
    """Return the seconds of the fastest of several calls."""
    best = float("inf")
    for _ in range(repeats + 1):
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
    return best


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--growth", type=Path, help="what benchmarks/growth.py wrote")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    with thread_count(1):
        rates = machine_rates()
        found = {short_name(source): measure_limit(source, rates) for source in asked.graphs}
        grown = limits_of_growth(asked.growth, rates) if asked.growth else []
        about = {"machine": machine(), "versions": versions()}
    write_json(asked.out, {"rates": rates, "datasets": found, "growth": grown, **about})


if __name__ == "__main__":
    main(sys.argv[1:])
