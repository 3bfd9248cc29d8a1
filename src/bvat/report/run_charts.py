"""Charts of a run's page: confusion matrix, reliability diagram, map of the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bvat.report.html import Markup, join, table, tag
from bvat.report.measures import Calibration
from bvat.report.svg import COLOURS, WIDTH, Axes, colour, frame, picture

MOST_CLASSES = 20
"""With more classes a matrix cannot be read: the commonest confusions are listed instead."""


def confusion_chart(counts: Tensor, names: Sequence[str]) -> Markup:
    """Return the confusion matrix, (C, C), as a table whose cells are shaded by their share of the row."""
    if len(names) > MOST_CLASSES:
        return _commonest(counts, names)
    shares = counts / counts.sum(1, keepdim=True).clamp_min(1)
    head = [tag("th", "true \\ predicted", scope="col")]
    head += [tag("th", _short(name), scope="col", title=name) for name in names]
    rows = []
    for i, name in enumerate(names):
        cells = [
            tag(
                "td",
                int(counts[i, j]),
                style=f"background: rgba(var(--heat), {0.55 * float(shares[i, j]):.2f})",
            )
            for j in range(len(names))
        ]
        rows.append(tag("tr", tag("th", name, scope="row", title=name), *cells))
    whole = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows), cls="heat")
    return tag("div", whole, cls="scroll", tabindex="0")


def _commonest(counts: Tensor, names: Sequence[str], most: int = 15) -> Markup:
    wrong = counts.clone()
    wrong.fill_diagonal_(0)
    values, places = wrong.flatten().sort(descending=True, stable=True)
    rows = [
        [names[int(place) // len(names)], tag("td", names[int(place) % len(names)]), int(value)]
        for value, place in zip(values[:most], places[:most], strict=True)
        if value
    ]
    said = tag("p", f"{len(names)} classes: the commonest confusions.", cls="soft")
    return join([said, table(["true", "predicted", "nodes"], rows)])


def _short(name: str, most: int = 12) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def calibration_chart(found: Calibration) -> Markup:
    """Return the reliability diagram: accuracy in each bin of confidence; on the diagonal they agree."""
    axes = Axes((0, 1), (0, 1))
    steps = [0, 0.2, 0.4, 0.6, 0.8, 1]
    parts = [frame(axes, steps, steps, "confidence", "accuracy")]
    bins = len(found.count)
    for k in range(bins):
        count = int(found.count[k])
        if not count:
            continue
        right, sure = float(found.accuracy[k]), float(found.confidence[k])
        left, top = axes.at(k / bins, right)
        width = axes.at((k + 1) / bins, 0)[0] - left
        height = axes.at(0, 0)[1] - top
        hint = tag("title", f"{count} nodes: confidence {sure:.3f}, accuracy {right:.3f}")
        parts.append(
            tag("rect", hint, x=f"{left + 1:.1f}", y=f"{top:.1f}", width=f"{width - 2:.1f}",
                height=f"{max(height, 1):.1f}", fill=colour(0), opacity=0.35)
        )  # fmt: skip
        x, y = axes.at(sure, right)
        parts.append(tag("circle", hint, cx=f"{x:.1f}", cy=f"{y:.1f}", r=4, fill=colour(0)))
    (x0, y0), (x1, y1) = axes.at(0, 0), axes.at(1, 1)
    parts.append(
        tag("path", d=f"M{x0} {y0}L{x1} {y1}", stroke="var(--soft)", stroke_dasharray="4 4", fill="none")
    )
    return picture(parts, f"reliability diagram, expected calibration error {found.error:.3f}")


def map_chart(places: Tensor, labels: Tensor, right: Tensor, names: Sequence[str]) -> Markup:
    """Return nodes as dots coloured by their class; those predicted wrong are crosses.

    Shapes: places (m, 2), labels (m), right bool (m).
    """
    width, height, edge = WIDTH, 330, 8
    low, high = places.min(0).values, places.max(0).values
    unit = (places - low) / (high - low).clamp_min(1e-12)
    x = (edge + unit[:, 0] * (width - 2 * edge)).tolist()
    y = (height - edge - unit[:, 1] * (height - 2 * edge)).tolist()
    dots: dict[int, list[str]] = {}
    crosses: dict[int, list[str]] = {}
    for i, (label, good) in enumerate(zip(labels.tolist(), right.tolist(), strict=True)):
        if good:
            dots.setdefault(label, []).append(f"M{x[i]:.1f} {y[i]:.1f}h0")
        else:
            crosses.setdefault(label, []).append(f"M{x[i] - 2:.1f} {y[i] - 2:.1f}l4 4m0-4l-4 4")
    shown: list[Any] = []
    for label, strokes in sorted(dots.items()):
        look = {"stroke_width": 3.6, "stroke_linecap": "round", "opacity": 0.55}
        hint = tag("title", names[label])
        shown.append(tag("path", hint, d="".join(strokes), stroke=class_colour(label, len(names)), **look))
    for label, strokes in sorted(crosses.items()):
        hint = tag("title", f"{names[label]}, predicted as something else")
        look = {"stroke_width": 1.2, "fill": "none"}
        shown.append(tag("path", hint, d="".join(strokes), stroke=class_colour(label, len(names)), **look))
    return join([picture(shown, "map of the nodes", width, height), _classes(names)])


def class_colour(label: int, classes: int) -> str:
    """Return the colour of a class: the page's own, or for many classes one around the circle."""
    if classes <= COLOURS:
        return colour(label)
    return f"hsl({360 * label / classes:.0f} 65% 50%)"


def _classes(names: Sequence[str]) -> Markup:
    if len(names) > MOST_CLASSES:
        return tag("p", f"{len(names)} classes; point at a dot for its name.", cls="note")
    items = []
    for label, name in enumerate(names):
        dot = tag("circle", cx=6, cy=6, r=5, fill=class_colour(label, len(names)))
        items.append(
            tag("span", tag("svg", dot, viewBox="0 0 12 12", style="width: 12px; flex-basis: 12px"), name)
        )
    cross = tag("path", d="M2 2l8 8m0-8l-8 8", stroke="var(--ink)", stroke_width=1.6)
    items.append(
        tag(
            "span",
            tag("svg", cross, viewBox="0 0 12 12", style="width: 12px; flex-basis: 12px"),
            "predicted wrong",
        )
    )
    return tag("div", *items, cls="legend")


def sampled(nodes: Tensor, most: int = 3000) -> Tensor:
    """Return the nodes, or ``most`` of them drawn at random, the same ones each time."""
    if nodes.numel() <= most:
        return nodes
    drawn = torch.randperm(nodes.numel(), generator=torch.Generator().manual_seed(0))[:most]
    return nodes[drawn.sort().values]
