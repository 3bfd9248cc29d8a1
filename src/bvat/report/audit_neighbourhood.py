"""A node and its neighbours as a small picture: their classes, and where the perturbation is largest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bvat.graph import Graph
from bvat.inference.tables import node_id
from bvat.report.charts import Drawing, dot_key, legend
from bvat.report.html import Markup, join, tag
from bvat.report.palette import colour

SIZE = 260
RINGS = (0.0, 62.0, 110.0)
AT_MOST = (1, 12, 24)
"""How many nodes are drawn in the middle and on each ring: those that the perturbation changes most."""

OWN, OTHER_CLASS, REST = 0, 1, 7
"""Colours: the class predicted for the node, the class it changes to, and any other."""


@dataclass(frozen=True)
class PlacedNode:
    """One node of the picture."""

    node: int
    x: float
    y: float
    share: float


def neighbourhood(
    graph: Graph,
    class_names: Sequence[str],
    predicted: Tensor,
    node: int,
    becomes: int,
    rows: tuple[Tensor, Tensor],
) -> Drawing:
    """Draw a node with its neighbours at one and two hops.

    Args:
        graph: the graph.
        class_names: names of the classes (C).
        predicted: class of every node, int64 (N).
        node: the node in the middle.
        becomes: the class that the perturbation changes it to.
        rows: the nodes of its receptive field (m) and the norm of the perturbation at each (m).
    """
    total = float(rows[1].square().sum().sqrt()) or 1.0
    share = {int(v): float(length) / total for v, length in zip(*rows, strict=True)}
    drawn, left_out = _placed(graph, node, share)
    at = {each.node: each for each in drawn}
    lines = []
    for each in drawn:
        for other in _neighbours(graph, each.node):
            if other in at and each.node < other:
                to = at[other]
                lines.append(f"M{each.x:.1f} {each.y:.1f}L{to.x:.1f} {to.y:.1f}")
    train = set(graph.train.tolist())
    own = int(predicted[node])
    parts: list[Any] = [tag("path", d="".join(lines), stroke="var(--soft)", stroke_opacity=0.4, fill="none")]
    for each in sorted(drawn, key=lambda d: d.node == node):
        label = int(predicted[each.node])
        kind = OWN if label == own else OTHER_CLASS if label == becomes else REST
        hint = f"{node_id(graph, each.node)}: {class_names[label]}, {100 * each.share:.0f} % of the change"
        radius = 3 + 9 * each.share
        style = {"cx": f"{each.x:.1f}", "cy": f"{each.y:.1f}", "r": f"{radius:.1f}", "fill": colour(kind)}
        outline = "var(--ink)" if each.node in train else "var(--page)"
        parts.append(tag("circle", tag("title", hint), **style, stroke=outline, stroke_width=1.3))
    if left_out:
        parts.append(tag("text", f"{left_out} more not drawn", x=SIZE - 4, y=SIZE - 4, text_anchor="end"))
    name = node_id(graph, node)
    return Drawing(join(parts), f"{name} and its neighbours", title=name, width=SIZE, height=SIZE)


def _placed(graph: Graph, node: int, share: dict[int, float]) -> tuple[list[PlacedNode], int]:
    """Place the neighbours on rings, near their own neighbours; return them and how many are left out."""
    angle = {node: 0.0}
    drawn = [PlacedNode(node, SIZE / 2, SIZE / 2, share.get(node, 0.0))]
    seen, ring = {node}, [node]
    for radius, most in zip(RINGS[1:], AT_MOST[1:], strict=True):
        parent: dict[int, int] = {}
        for inner in ring:
            for outer in _neighbours(graph, inner):
                if outer not in seen and outer in share:
                    seen.add(outer)
                    parent[outer] = inner
        kept = sorted(parent, key=lambda v: (-share[v], v))[:most]
        kept.sort(key=lambda v: (angle[parent[v]], v))
        for place, v in enumerate(kept):
            angle[v] = 2 * math.pi * (place + 0.5) / len(kept)
            x, y = SIZE / 2 + radius * math.sin(angle[v]), SIZE / 2 - radius * math.cos(angle[v])
            drawn.append(PlacedNode(v, x, y, share[v]))
        ring = kept
    return drawn, len(share) - len(drawn)


def _neighbours(graph: Graph, node: int) -> list[int]:
    a = graph.adjacency
    return [int(v) for v in a.col[int(a.crow[node]) : int(a.crow[node + 1])]]


def neighbourhood_legend() -> Markup:
    """Return what the colours and sizes mean."""
    return legend(
        [
            dot_key("same predicted class as the node", colour(OWN)),
            dot_key("predicted as the class it changes to", colour(OTHER_CLASS)),
            dot_key("any other class", colour(REST)),
            dot_key("outlined: labelled for training", colour(REST), outline="var(--ink)"),
            dot_key("larger: more of the change is in this node's features", colour(OWN), radius=6),
        ]
    )


def predicted_classes(model: Any, graph: Graph) -> Tensor:
    """Return the class of every node, int64 (N), on the CPU."""
    with torch.no_grad():
        classes: Tensor = model(graph).argmax(1).cpu()
    return classes
