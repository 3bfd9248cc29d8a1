"""How far an epoch is from what the machine could do.

The limit of an epoch is the longer of two times: its bytes (see :mod:`bvat.bench.cost`) at the measured
memory bandwidth, and its flops at the measured rate of a dense product. It is reported together with the time
of the sparse products alone. Small graphs stay in the caches, which are faster than memory (``cache_gb_s``):
their limit is even lower.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from bvat.bench.cost import Sizes, cost_of, counts_of
from bvat.bench.plan import Budget
from bvat.bench.timing import interleave
from bvat.graph import Graph
from bvat.training.settings import Settings

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
    graph: Graph, methods: dict[str, dict[str, Any]], rates: dict[str, float], budget: Budget
) -> dict[str, Any]:
    """Compare the epochs on one graph with the limit and with their sparse products alone.

    Args:
        methods: what :func:`measure_methods` returned.
        rates: what :func:`machine_rates` returned.

    Returns:
        ``{"sizes": ..., "product_ms": {kind: ms}, "methods": {method: see limit_of, and "products_ms" and
        "products_fraction"}}``.
    """
    settings = {name: Settings(**measured["settings"]) for name, measured in methods.items()}
    sizes = Sizes.of(graph, next(iter(settings.values())))
    product_ms = measure_products(graph, sizes, budget)
    rows: dict[str, Any] = {}
    for name, chosen in settings.items():
        row, counts = limit_of(sizes, chosen, methods[name]["epoch_ms"], rates), counts_of(chosen)
        if row is not None and counts is not None:
            alone = sum(number * product_ms[kind] for kind, number in counts.products().items())
            rows[name] = {**row, "products_ms": alone, "products_fraction": alone / row["epoch_ms"]}
    return {"sizes": asdict(sizes), "product_ms": product_ms, "methods": rows}


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
