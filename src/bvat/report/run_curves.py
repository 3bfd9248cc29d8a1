"""The curves of training: losses, accuracies, R_vadv and the perturbation by epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from bvat.report.charts import Drawing, Line, line_chart

Curves = Mapping[str, Sequence[float]]
"""The metrics of one seed, one list per column."""


def training_charts(curves: Sequence[Curves]) -> list[Drawing]:
    """Draw the metrics of one or more seeds; of several, means and standard deviations."""
    loss = {"loss": "loss", "supervised": "cross-entropy on labelled nodes", "entropy": "entropy"}
    accuracy = {"train_accuracy": "train", "val_accuracy": "validation", "test_accuracy": "test"}
    charts = [("Loss", "loss", loss, 0.0), ("Accuracy", "accuracy (%)", accuracy, None)]
    if any(value for curve in curves for value in curve["r_vadv"]):
        charts.append(("R_vadv", "R_vadv", {"r_vadv": "R_vadv"}, 0.0))
    if any(value for curve in curves for value in curve["row_norm"]):
        charts.append(("Perturbation", "mean norm of a row", {"row_norm": "perturbation"}, 0.0))
    drawings = []
    for title, label, columns, floor in charts:
        lines = []
        for number, (column, words) in enumerate(columns.items()):
            if any(math.isfinite(value) and value != 0 for curve in curves for value in curve[column]):
                lines.append(_mean_line(curves, column, words, number))
        drawings.append(line_chart(lines, "epoch", label, title=title, floor=floor))
    return drawings


def _mean_line(curves: Sequence[Curves], column: str, words: str, number: int) -> Line:
    length = min(len(curve[column]) for curve in curves)
    stacked = torch.tensor([curve[column][:length] for curve in curves], dtype=torch.float64)
    spread = stacked.std(0).tolist() if len(curves) > 1 else None
    return Line(words, list(range(1, length + 1)), stacked.mean(0).tolist(), spread, number)
