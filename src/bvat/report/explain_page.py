"""The page of ``bvat explain``: a picture of the neighbourhood, and what each neighbour and feature added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from numpy.typing import NDArray

from bvat.graph import Graph
from bvat.report.charts import SERIES, Chart, legend_label
from bvat.report.pages import Cell, render, signed
from bvat.report.svg import LIGHT, plain
from bvat.training.provenance import versions
from bvat.trust.explain import FAR, Explanation

DRAWN = 40
"""Number of neighbours in the picture, those with the largest contributions."""
NAMED = 8
"""Number of them whose ids are written beside them."""
HEIGHT = 430
"""Of the picture, in pixels."""
RINGS = 3
"""Nodes this many hops away, farther away, or without a path are on the outermost ring."""


def explain_page(graph: Graph, found: Explanation, run: str, top: int, command: str) -> str:
    p = found.probabilities
    shown = found.as_dict(top)
    drawn = min(DRAWN, int((found.node_columns["node"] != found.node).sum()))
    return render(
        "explain.html",
        title=f"Why {found.id} is {found.predicted}",
        found=found,
        graph=graph,
        run=run,
        drawn=drawn,
        chart=neighbourhood_chart(graph, found),
        numbers={
            f"probability of {found.predicted}": f"{100 * p[found.predicted]:.1f} %",
            f"probability of {found.next}, the next class": f"{100 * p[found.next]:.1f} %",
            "label": found.label or "unknown",
            f"smallest change that leads to {found.becomes}" if found.becomes else "smallest change of class":
                f"{found.smallest:.3g}" if found.becomes else "none found",
        },
        neighbours=[
            [row["id"], Cell(row["predicted"]), Cell(row["label"] or "unknown"),
             "-" if row["hops"] == FAR else row["hops"], _percent(row["share"])]
            for row in shown["neighbours"]
        ],
        features=[[r["feature"], f"{r['value']:.3g}", _percent(r["share"])] for r in shown["features"]],
        probabilities=[[name, f"{100 * p[name]:.1f} %"] for name in sorted(p, key=lambda name: -p[name])],
        command=command,
        versions=versions(),
    )  # fmt: skip


def neighbourhood_chart(graph: Graph, found: Explanation) -> Chart:
    """Return the explained node among the neighbours that contributed most, on rings by distance.

    Colours are predicted classes, areas are contributions, and hollow circles speak for the next class.
    """
    columns = found.node_columns
    own, others = (np.flatnonzero((columns["node"] != found.node) == other) for other in (False, True))
    others = others[:DRAWN]
    nodes = np.concatenate([[found.node], columns["node"][others]])
    matrix = graph.adjacency.to_scipy()[nodes][:, nodes].tocoo()
    hops = columns["hops"][others]
    ring = np.concatenate([[0], np.where((hops == FAR) | (hops > RINGS), RINGS, hops)])
    share = np.concatenate([columns["share"][own] if own.size else [0.0], columns["share"][others]])
    classes = np.concatenate([[found.predicted], columns["predicted"][others]])
    place = _places(ring, classes, matrix)
    shown = [plain(name)[:16] for name in [found.id, *columns["id"][others[:NAMED]]]]
    sizes = 25 + 350 * np.abs(share) / max(float(np.abs(share).max()), 1e-12)
    ranked = enumerate(Counter(classes.tolist()).most_common())
    colours = {name: SERIES[min(number, len(SERIES) - 1)] for number, (name, _) in ranked}

    def draw(ax: Axes) -> None:
        ax.set_axis_off()
        ax.set_aspect("equal")
        once = matrix.row < matrix.col
        lines = np.stack([place[matrix.row[once]], place[matrix.col[once]]], 1)
        ax.add_collection(LineCollection(list(lines), colors=LIGHT["line"], linewidths=1, zorder=1))
        edges = [colours[name] for name in classes]
        faces = [LIGHT["page"] if part < 0 else edge for part, edge in zip(share, edges, strict=True)]
        ax.scatter(place[:, 0], place[:, 1], s=sizes, c=faces, edgecolors=edges, linewidths=1.8, zorder=2)
        for name, colour in colours.items():
            ax.scatter([], [], s=70, c=colour, label=legend_label(name, 30))
        if (share < 0).any():
            label = legend_label(f"speaks for {found.next}", 40)
            ax.scatter([], [], s=70, c=LIGHT["page"], edgecolors=LIGHT["soft"], linewidths=1.8, label=label)
        for k in _apart(place, shown):
            ax.annotate(
                shown[k], place[k], (0, -(sizes[k] ** 0.5) / 2 - 3), textcoords="offset points",
                ha="center", va="top", fontsize=10, color=LIGHT["ink"], zorder=3,
            )  # fmt: skip
        ax.margins(0.1)

    label = f"{found.id} and the {len(others)} nodes that contributed most, coloured by predicted class"
    return Chart(draw, label, width=480, height=HEIGHT)


def _apart(place: NDArray[Any], names: Sequence[str]) -> list[int]:
    """Return which of the first nodes get a name: each unless it would lie on one before it.

    Shapes: place (m, 2), with a name for each of the first rows.
    """
    scale = HEIGHT / (2.4 * max(1.0, float(np.abs(place).max())))  # pixels per unit, roughly
    kept: list[int] = []
    for k, name in enumerate(names):
        gaps = ((np.abs(place[k] - place[j]) * scale, len(name) + len(names[j])) for j in kept)
        if all(gap[1] > 13 or gap[0] > 2.9 * letters for gap, letters in gaps):
            kept.append(k)
    return kept


def _places(ring: NDArray[Any], classes: NDArray[Any], edges: Any) -> NDArray[Any]:
    """Return positions on rings, (m, 2): evenly spread, in the order of the angles of inner neighbours.

    Shapes: ring int64 (m), 0 for the node in the middle; classes (m); edges COO (m, m).
    """
    place = np.zeros((ring.size, 2))
    for radius, number in enumerate(np.unique(ring[ring > 0]), 1):
        these = np.flatnonzero(ring == number)
        inner = ring[edges.col] < number
        pull = np.zeros((ring.size, 2))
        np.add.at(pull, edges.row[inner], place[edges.col[inner]])
        wanted = np.arctan2(pull[these, 1], pull[these, 0])
        order = np.lexsort((classes[these], wanted))
        angle = 2 * np.pi * np.arange(these.size) / these.size
        angle += np.angle(np.exp(1j * (wanted[order] - angle)).sum())  # turned to where they are pulled
        place[these[order]] = radius * np.stack([np.cos(angle), np.sin(angle)], 1)
    return place


def _percent(share: float) -> str:
    return f"{signed(100 * share)}\N{NO-BREAK SPACE}%"
