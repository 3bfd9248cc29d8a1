"""Graphs whose nodes have several labels, for tests of all packages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

import bvat
from bvat.data.files import write_csv

NAMES = ("folk", "jazz", "pop", "rock")


def songs(nodes: int = 160, seed: int = 0) -> bvat.Graph:
    """Return a graph with four labels: nodes have none, one or two of them, and features tell which."""
    drawn = bvat.synthetic_graph(
        nodes=nodes, edges=3 * nodes, features=60, classes=4, train_per_class=10, val=40, test=60, seed=seed
    )
    kinds = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]])
    labels = torch.where(drawn.labels[:, None] < 0, -1, kinds[drawn.labels])
    labels[drawn.labels == 1, 3] = (torch.arange(int((drawn.labels == 1).sum())) % 5 == 0).long()
    return replace(drawn, labels=labels, class_names=NAMES, name="songs").with_engine("tensor")


def write_songs(folder: Path, graph: bvat.Graph, *, labels: bool = True, split: bool = True) -> None:
    """Write a graph as tables; nodes outside the splits have no label."""
    folder.mkdir()
    part = {k: name for name in ("train", "val", "test") for k in getattr(graph, name).tolist()}
    names = ["id", *["labels"] * labels, *["split"] * split, *[f"x{k}" for k in range(graph.num_features)]]
    rows = []
    for k, (given, features) in enumerate(
        zip(graph.labels.tolist(), graph.features.to_dense().tolist(), strict=True)
    ):
        cell = "|".join(name for name, has in zip(graph.class_names, given, strict=True) if has == 1) or "|"
        cells = [f"n{k}", *[cell if k in part else ""] * labels, *[part.get(k, "")] * split]
        rows.append([*cells, *map(str, features)])
    write_csv(folder / "nodes.csv", names, rows)
    ends = zip(graph.adjacency.rows.tolist(), graph.adjacency.col.tolist(), strict=True)
    write_csv(folder / "edges.csv", ("source", "target"), [[f"n{u}", f"n{v}"] for u, v in ends if u < v])
