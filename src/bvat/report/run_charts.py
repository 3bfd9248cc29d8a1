"""Charts of a run's page: confusion matrix, reliability diagram, map of the nodes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bvat.report.charts import Axis, Drawing, Key, Plot, dot_key
from bvat.report.charts.drawing import WIDTH
from bvat.report.html import Markup, join, table, tag
from bvat.report.measures import Calibration
from bvat.report.palette import SERIES_COLOURS, colour

MOST_CLASSES = 20
"""With more classes a matrix is unreadable: the most common confusions are listed instead."""


def confusion_chart(counts: Tensor, names: Sequence[str]) -> Markup:
    """Return the confusion matrix, (C, C), as a table whose cells are shaded by their share of the row."""
    if len(names) > MOST_CLASSES:
        return _most_common(counts, names)
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


def _most_common(counts: Tensor, names: Sequence[str], most: int = 15) -> Markup:
    wrong = counts.clone()
    wrong.fill_diagonal_(0)
    values, places = wrong.flatten().sort(descending=True, stable=True)
    rows = [
        [names[int(place) // len(names)], tag("td", names[int(place) % len(names)]), int(value)]
        for value, place in zip(values[:most], places[:most], strict=True)
        if value
    ]
    note = tag("p", f"{len(names)} classes: the most common confusions.", cls="soft")
    return join([note, table(["true", "predicted", "nodes"], rows)])


def _short(name: str, most: int = 12) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def reliability_diagram(found: Calibration) -> Drawing:
    """Draw the accuracy in each bin of confidence; the model is calibrated on the diagonal."""
    steps = [0, 0.2, 0.4, 0.6, 0.8, 1]
    plot = Plot(Axis("confidence", 0, 1, steps), Axis("accuracy", 0, 1, steps))
    parts = [plot.frame()]
    bins = len(found.count)
    for k in range(bins):
        count = int(found.count[k])
        if not count:
            continue
        accuracy, confidence = float(found.accuracy[k]), float(found.confidence[k])
        left, top = plot.at(k / bins, accuracy)
        right, bottom = plot.at((k + 1) / bins, 0)
        hint = tag("title", f"{count} nodes: confidence {confidence:.3f}, accuracy {accuracy:.3f}")
        parts.append(
            tag("rect", hint, x=f"{left + 1:.1f}", y=f"{top:.1f}", width=f"{right - left - 2:.1f}",
                height=f"{max(bottom - top, 1):.1f}", fill=colour(0), opacity=0.35)
        )  # fmt: skip
        x, y = plot.at(confidence, accuracy)
        parts.append(tag("circle", hint, cx=f"{x:.1f}", cy=f"{y:.1f}", r=4, fill=colour(0)))
    (x0, y0), (x1, y1) = plot.at(0, 0), plot.at(1, 1)
    parts.append(
        tag("path", d=f"M{x0} {y0}L{x1} {y1}", stroke="var(--soft)", stroke_dasharray="4 4", fill="none")
    )
    label = f"reliability diagram, expected calibration error {found.error:.3f}"
    return Drawing(join(parts), label, title="Calibration")


def node_map(places: Tensor, labels: Tensor, correct: Tensor, names: Sequence[str]) -> Drawing:
    """Draw nodes as dots in the colour of their class, and as crosses if the prediction is wrong.

    Shapes: places (m, 2), labels (m), correct bool (m).
    """
    height, edge = 330, 8
    low, high = places.min(0).values, places.max(0).values
    unit = (places - low) / (high - low).clamp_min(1e-12)
    x = (edge + unit[:, 0] * (WIDTH - 2 * edge)).tolist()
    y = (height - edge - unit[:, 1] * (height - 2 * edge)).tolist()
    dots: dict[int, list[str]] = {}
    crosses: dict[int, list[str]] = {}
    for i, (label, good) in enumerate(zip(labels.tolist(), correct.tolist(), strict=True)):
        if good:
            dots.setdefault(label, []).append(f"M{x[i]:.1f} {y[i]:.1f}h0")
        else:
            crosses.setdefault(label, []).append(f"M{x[i] - 2:.1f} {y[i] - 2:.1f}l4 4m0-4l-4 4")
    fills = [class_colour(k, len(names)) for k in range(len(names))]
    # one path per class is a much smaller page than one element per node
    parts = [
        tag("path", tag("title", names[label]), d="".join(strokes), stroke=fills[label], stroke_width=3.6,
            stroke_linecap="round", opacity=0.55)
        for label, strokes in sorted(dots.items())
    ]  # fmt: skip
    parts += [
        tag("path", tag("title", f"{names[label]}, predicted as another class"), d="".join(strokes),
            stroke=fills[label], stroke_width=1.2, fill="none")
        for label, strokes in sorted(crosses.items())
    ]  # fmt: skip
    keys = [dot_key(name, fill) for name, fill in zip(names, fills, strict=True)]
    if len(names) > MOST_CLASSES:
        keys = []
    cross = tag("path", d="M3 2l8 8m0-8l-8 8", stroke="var(--ink)", stroke_width=1.6)
    keys.append(Key("wrong prediction", cross, width=14))
    return Drawing(join(parts), "map of the nodes", tuple(keys), "Map of the nodes", WIDTH, height)


def class_colour(label: int, classes: int) -> str:
    """Return the colour of a class: one of the page's, or with many classes a hue from the colour wheel."""
    if classes <= SERIES_COLOURS:
        return colour(label)
    return f"hsl({360 * label / classes:.0f} 65% 50%)"


def sampled(nodes: Tensor, most: int = 3000) -> Tensor:
    """Return the nodes, or ``most`` of them chosen at random, always the same ones."""
    if nodes.numel() <= most:
        return nodes
    drawn = torch.randperm(nodes.numel(), generator=torch.Generator().manual_seed(0))[:most]
    return nodes[drawn.sort().values]
