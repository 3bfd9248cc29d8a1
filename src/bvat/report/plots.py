"""``bvat.plot``: the charts of the pages on matplotlib's Axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray
from torch import Tensor

from bvat.audit.certify import BUDGETS, Budget
from bvat.audit.result import Audit
from bvat.errors import SettingsError
from bvat.estimator.node_classifier import NodeClassifier
from bvat.report.charts import Chart, Line, line_chart, style
from bvat.training.loop import TrainedModel

Curves = Mapping[str, Sequence[float]]
"""The metrics of one seed, one list per column."""


@overload
def plot(*things: TrainedModel | Audit | NodeClassifier) -> NDArray[Any]: ...


@overload
def plot(*things: TrainedModel | Audit | NodeClassifier, what: str, ax: Axes | None = None) -> Axes: ...


def plot(
    *things: TrainedModel | Audit | NodeClassifier, what: str | None = None, ax: Axes | None = None
) -> Axes | NDArray[Any]:
    """Draw how a model was trained, or what an audit found.

    Args:
        things: trained models (several are seeds of one run: their means and standard deviations are drawn),
            fitted classifiers, or audits (several are drawn together, to compare them).
        what: one of the charts: ``"loss"``, ``"accuracy"``, ``"r_vadv"`` or ``"perturbation"`` of training,
            ``"smallest"``, ``"lds"`` or, with a certificate, ``"certified"``, ``"certified_rows"`` and
            ``"certified_node"`` of an audit. By default all of them, side by side in one figure.
        ax: matplotlib's Axes to draw the chart on; by default those of a new figure.

    Returns:
        The Axes of the chart, or an array of them if ``what`` is not given.

    Example:
        >>> trained = bvat.train(graph, bvat.preset("", "none", epochs=5))
        >>> axes = bvat.plot(trained)  # or trained.plot()
        >>> axes[0].figure.savefig("training.pdf")
        >>> bvat.plot(trained, what="accuracy").figure.savefig("accuracy.png")
    """
    title, charts = _charts(things)
    if what is not None and what not in charts:
        raise SettingsError(f"there is no plot of {what!r} here: choose one of {', '.join(charts)}")
    if what is None and ax is not None:
        raise SettingsError(f"one Axes holds one plot: choose it with what=, one of {', '.join(charts)}")
    chosen = list(charts.values()) if what is None else [charts[what]]
    with style():
        axes = _new_axes(title, len(chosen)) if ax is None else np.array([ax])
        for each, chart in zip(axes, chosen, strict=True):
            chart.draw(each)
            each.set_title(chart.title)
            if len(each.get_legend_handles_labels()[1]) > 1:
                each.legend()
    return axes if what is None else axes[0]


def _new_axes(title: str, count: int) -> NDArray[Any]:
    from matplotlib import pyplot  # notebooks show the figures that it made

    rows, columns = math.ceil(count / 2), min(2, count)
    size = (6.1 * columns, 4 * rows)
    figure, grid = pyplot.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    figure.suptitle(title)
    for each in grid.flatten()[count:]:
        each.remove()
    found: NDArray[Any] = grid.flatten()[:count]
    return found


def _charts(things: Sequence[Any]) -> tuple[str, dict[str, Chart]]:
    if things and all(isinstance(thing, Audit) for thing in things):
        names = [f"audit {k + 1}" if len(things) > 1 else "nodes" for k in range(len(things))]
        return "How fragile the predictions are", audit_charts(list(zip(names, things, strict=True)))
    models = list(map(_trained, things))
    if not models:
        raise SettingsError("nothing to plot: give a TrainedModel, a fitted NodeClassifier or an Audit")
    many = f"{len(models)} seeds" if len(models) > 1 else f"seed {models[0].seed}"
    curves = [{name: [row[name] for row in m.metrics] for name in m.metrics[0]} for m in models]
    return f"Training, {many}", training_charts(curves)


def _trained(thing: Any) -> TrainedModel:
    found = thing.training_ if isinstance(thing, NodeClassifier) else thing
    if isinstance(found, TrainedModel):
        return found
    what = "an unfitted or loaded NodeClassifier" if found is None else f"a {type(thing).__name__}"
    raise SettingsError(
        f"{what} cannot be plotted: give TrainedModels and fitted NodeClassifiers, or only Audits"
    )


def training_charts(curves: Sequence[Curves]) -> dict[str, Chart]:
    """Return the metrics of one or more seeds by epoch; of several, means and standard deviations."""
    charts = {}
    for name, title, label, columns in (
        ("loss", "Loss", "loss",
         {"loss": "loss", "supervised": "cross-entropy on labelled nodes", "entropy": "entropy"}),
        ("accuracy", "Accuracy", "accuracy (%)",
         {"train_accuracy": "train", "val_accuracy": "validation", "test_accuracy": "test"}),
        ("r_vadv", "R_vadv", "R_vadv", {"r_vadv": "R_vadv"}),
        ("perturbation", "Perturbation", "mean norm of a row", {"row_norm": "perturbation"}),
    ):  # fmt: skip
        lines = [line for k, column in enumerate(columns.items()) if (line := _by_epoch(curves, k, *column))]
        if lines:
            floor = None if name == "accuracy" else 0.0
            charts[name] = line_chart(lines, "epoch", label, title=title, floor=floor)
    return charts


def _by_epoch(curves: Sequence[Curves], number: int, column: str, label: str) -> Line | None:
    """Return the mean of a metric by epoch; None of one that is 0 or not measured in every epoch."""
    if not any(math.isfinite(value) and value != 0 for curve in curves for value in curve[column]):
        return None
    length = min(len(curve[column]) for curve in curves)
    stacked = torch.tensor([curve[column][:length] for curve in curves], dtype=torch.float64)
    spread = stacked.std(0).tolist() if len(curves) > 1 else None
    return Line(label, range(1, length + 1), stacked.mean(0).tolist(), spread, number)


def audit_charts(audits: Sequence[tuple[str, Audit]]) -> dict[str, Chart]:
    """Return the share of nodes whose class changes within a norm, and with at most an LDS, by model."""
    norm, share = "norm of the change, in units of the features", "% of nodes"
    flips = _cut([_cumulative(name, audit.smallest, k) for k, (name, audit) in enumerate(audits)])
    spread = _cut([_cumulative(name, audit.lds, k) for k, (name, audit) in enumerate(audits)])
    within, lds = "Nodes whose class changes within this norm", "LDS (KL divergence)"
    at_most = f"Nodes with at most this LDS, ε = {audits[0][1].epsilon:g}"
    found = {
        "smallest": line_chart(flips, norm, share, floor=0, title=within),
        "lds": line_chart(spread, lds, share, floor=0, title=at_most),
    }
    certified = any(bool(audit.certified.any()) for _, audit in audits)
    return found | (dict(_bands(audits, budget) for budget in BUDGETS) if certified else {})


def _bands(audits: Sequence[tuple[str, Audit]], budget: Budget) -> tuple[str, Chart]:
    """Return the name and the chart of how many nodes keep their class, from proved to not broken."""
    norms = [audit.norms(budget) for _, audit in audits]
    found = _cut([_cumulative("", smallest, 0) for _, smallest in norms])
    sizes = np.linspace(0, max(line.x[-1] for line in found), 101)
    about = {"graph": "Frobenius norm", "rows": "norm of the longest row", "node": "norm of the only row"}[
        budget
    ]
    bands = {
        name: (sizes, *(100 * (part.numpy()[:, None] > sizes).mean(0) for part in each))
        for (name, _), each in zip(audits, norms, strict=True)
    }
    title = f"Nodes that keep their class, budget {budget}"
    chart = band_chart(bands, f"{about} of the change, in units of the features", "% of nodes", title=title)
    return "certified" if budget == "graph" else f"certified_{budget}", chart


def band_chart(
    bands: Mapping[str, tuple[Any, Any, Any]], x_label: str, y_label: str, *, title: str = ""
) -> Chart:
    """Return a chart of lower and upper bounds: x, low and high of each name, with a line in their middle."""
    lines = [
        Line(name, list(x), list((low + high) / 2), list((high - low) / 2), number)
        for number, (name, (x, low, high)) in enumerate(bands.items())
    ]
    return line_chart(lines, x_label, y_label, title=title, floor=0)


def _cumulative(label: str, values: Tensor, number: int) -> Line:
    """Return the percentage of nodes up to each value, at 101 quantiles."""
    ordered = np.sort(values.double().numpy())
    places = np.unique(np.linspace(0, ordered.size - 1, 101).round().astype(int))
    places = places[np.isfinite(ordered[places])]
    x, y = ordered[places], 100 * (places + 1) / ordered.size
    return Line(label, [0.0, *x.tolist()], [0.0, *y.tolist()], colour=number, dashed=number > 0)


def _cut(lines: Sequence[Line]) -> list[Line]:
    """Leave out the last few nodes, whose values would compress the rest."""
    end = max([x for line in lines for x, y in zip(line.x, line.y, strict=True) if y <= 98], default=0.0)
    counts = [sum(x <= end for x in line.x) for line in lines]
    return [replace(line, x=line.x[:n], y=line.y[:n]) for line, n in zip(lines, counts, strict=True)]
