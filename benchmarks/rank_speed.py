"""Time, memory and bytes of an epoch over several ranks, see ranks.py."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bvat.engine.matrix import padded_width
from bvat.engine.sparse import SparseMatrix, SymmetricMatrix
from bvat.graph import Graph
from bvat.parts.parts import assign, cut
from bvat.training.settings import preset_among
from rank_plan import passes_per_epoch
from rank_runs import FROM_THE_START, cut_into, train_parts

WORDS, FEATURES, CLASSES = 8, 128, 8


def community_graph(
    nodes: int, edges: int, *, size: int = 1000, inside: float = 0.99, seed: int = 0
) -> Graph:
    """Return a graph of communities of ``size`` nodes, numbered at random, with most edges inside."""
    rng = np.random.default_rng(seed)
    number = rng.permutation(nodes)
    many = round(1.02 * edges)  # some are drawn twice
    source = rng.integers(0, nodes, many)
    start = source // size * size
    near = start + (rng.random(many) * np.minimum(size, nodes - start)).astype(np.int64)
    target = np.where(rng.random(many) < inside, near, rng.integers(0, nodes, many))
    low, high = np.minimum(number[source], number[target]), np.maximum(number[source], number[target])
    pairs = np.unique((low * nodes + high)[low != high])
    pairs = np.sort(rng.permutation(pairs)[:edges])
    keys = np.concatenate([pairs, pairs % nodes * nodes + pairs // nodes])
    keys.sort()
    crow = np.zeros(nodes + 1, dtype=np.int32)
    np.cumsum(np.bincount(keys // nodes, minlength=nodes), out=crow[1:])
    columns = torch.from_numpy((keys % nodes).astype(np.int32))
    labels = np.empty(nodes, dtype=np.int64)
    labels[number] = np.arange(nodes) // size % CLASSES
    words = rng.integers(0, FEATURES // WORDS, (nodes, WORDS)) + np.arange(WORDS) * (FEATURES // WORDS)
    splits = torch.from_numpy(rng.permutation(nodes))
    few = max(8, nodes // 100)
    return Graph(
        features=SparseMatrix(
            torch.arange(nodes + 1, dtype=torch.int32) * WORDS,
            torch.from_numpy(words.astype(np.int32).reshape(-1)),
            torch.full((nodes * WORDS,), 1 / WORDS),
            (nodes, FEATURES),
        ),
        adjacency=SymmetricMatrix(torch.from_numpy(crow), columns, torch.ones(len(keys)), (nodes, nodes)),
        labels=torch.from_numpy(labels),
        train=splits[:few].sort()[0],
        val=splits[few : 2 * few].sort()[0],
        test=splits[2 * few : 3 * few].sort()[0],
        class_names=tuple(map(str, range(CLASSES))),
        name="communities",
    )


def formula(method: str, sent_rows: int, settings: Any) -> int:
    """Return the bytes that a rank sends in an epoch: rows x widths x products x 4."""
    width = padded_width(settings.hidden) + padded_width(CLASSES)
    return 4 * sent_rows * width * passes_per_epoch(method, getattr(settings, "steps", 0))


def speed(work: Path, nodes: int, edges: int, epochs: int, ranks: tuple[int, ...] = (1, 2)) -> dict[str, Any]:
    """Measure epochs of GCN, VAT and O-BVAT; all runs have the same communities.

    Memory is that above a rank that has trained a graph of 1,000 nodes, ``memory_mb``, and above one that has
    only imported everything, ``memory_with_code_mb``: compiled code and the libraries that it needs are not
    loaded there.
    """
    graph, tiny = community_graph(nodes, edges), community_graph(1000, 10_000)
    plain = {**FROM_THE_START, "hidden": 16, "model": "gcn"}
    runs: Any = {
        "gcn": ("", "none", epochs, plain),
        "vat": ("", "vat", epochs, plain),
        "obvat": ("", "obvat", epochs, {**plain, "search": "adam", "steps": 10}),
    }
    rows: dict[str, Any] = {}
    logits: dict[str, Any] = {}
    for size in ranks:
        folder = work / f"communities-{nodes}-{edges}-{size}"
        about = cut_into(graph, size, folder)
        cut_into(tiny, size, work / f"tiny-{size}")
        empty = train_parts(work / f"tiny-{size}", size, runs)
        found = train_parts(folder, size, runs)
        rows[str(size)] = {
            name: {
                "seconds": result["seconds"],
                "processor_seconds": result["busy"],
                "memory_mb": [a - b for a, b in zip(result["memory"], empty[name]["memory"], strict=True)],
                "memory_with_code_mb": result["memory"],
                "sent": result["sent"],
                "formula": [
                    formula(name, part["sent"], preset_among("", runs[name][1], **runs[name][3]))
                    for part in about["table"]
                ],
                "same_bits": bool(
                    np.array_equal(result["logits"], logits.setdefault(name, result["logits"]))
                ),
            }
            for name, result in found.items()
        }
        rows[str(size)]["table"] = about["table"]
    return {"nodes": nodes, "edges": edges, "ranks": rows}


def halos(graph: Graph, parts: int) -> dict[str, Any]:
    """Return the share of halo nodes of METIS and of random parts."""
    found: dict[str, Any] = {"parts": parts}
    for by in ("metis", "random"):
        sizes = [part.halo.numel() for part in cut(graph.propagation, assign(graph, parts, by))]
        found[by] = sum(sizes) / graph.num_nodes
    return {**found, "ratio": found["metis"] / found["random"]}


def growth(work: Path, sizes: list[int], epochs: int) -> dict[str, Any]:
    """Measure O-BVAT's epoch on one rank at several numbers of edges."""
    rows: list[dict[str, Any]] = []
    options = {**FROM_THE_START, "hidden": 16, "model": "gcn", "search": "adam", "steps": 10}
    for edges in sizes:
        folder = work / f"growth-{edges}"
        cut_into(community_graph(edges // 10, edges), 1, folder)
        found = train_parts(folder, 1, {"obvat": ("", "obvat", epochs, options)})["obvat"]
        rows.append({"edges": edges, "seconds": found["seconds"], "processor_seconds": found["busy"][0]})
    x, y = ([math.log(row[name]) for row in rows] for name in ("edges", "processor_seconds"))
    return {"rows": rows, "exponent": float(np.polyfit(x, y, 1)[0])}
