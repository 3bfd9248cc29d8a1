"""A world of one rank in this process: the arithmetic of several ranks without processes."""

from __future__ import annotations

from pathlib import Path

import torch

from bvat.engine.ranks import RankEngine
from bvat.graph import Graph
from bvat.parts.folder import read_about, read_part, write_parts
from bvat.parts.part_graph import PartGraph, own_share, part_graph
from bvat.parts.parts import assign, cut
from bvat.training.provenance import graph_fingerprint


def one_part(graph: Graph) -> tuple[RankEngine, PartGraph]:
    """Return a world of one rank and the whole graph as its part."""
    world = RankEngine(0, 1, graph.num_nodes)
    part = next(cut(graph.propagation, torch.zeros(graph.num_nodes, dtype=torch.int64)))
    share = own_share(graph, part)
    features = share.pop("features")
    sizes = {"whole_nodes": graph.num_nodes, "whole_edges": graph.num_edges}
    about = {**share, **sizes, "class_names": graph.class_names, "fingerprint": graph_fingerprint(graph)}
    return world, part_graph(world, part, features, about)


def write(graph: Graph, parts: int, folder: Path, by: str = "order") -> Path:
    """Cut a graph into a folder."""
    owner = assign(graph, parts, by)  # type: ignore[arg-type]
    write_parts(graph, owner, folder, fingerprint=graph_fingerprint(graph), how={"by": by, "cut": 0.5})
    return folder


__all__ = ["one_part", "read_about", "read_part", "write"]
