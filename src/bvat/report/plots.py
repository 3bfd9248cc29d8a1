"""Plots from Python: the charts of the pages as figures of their own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bvat.audit.audit import Audit
from bvat.errors import SettingsError
from bvat.inference.estimator import NodeClassifier
from bvat.inference.tables import check_writable, write_text
from bvat.report.audit_curves import distribution_charts
from bvat.report.charts import standalone
from bvat.report.run_curves import Curves, training_charts
from bvat.training.loop import TrainedModel


@dataclass(frozen=True)
class Figure:
    """A figure as SVG, which notebooks show by themselves."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Figure({len(self.svg):,} bytes of SVG; write it with .save('figure.svg'))"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the figure to a ``.svg`` file."""
        target = Path(path)
        if target.suffix.lower() != ".svg":
            raise SettingsError(f"{target} cannot be written as a figure: give it a name that ends in .svg")
        check_writable(target)
        write_text(target, self.svg)


def plot(*things: TrainedModel | Audit | NodeClassifier) -> Figure:
    """Draw how a model was trained, or what an audit found.

    Args:
        things: trained models (several are seeds of one run: their means and standard deviations are drawn),
            fitted classifiers, or audits (several are drawn together, to compare them).

    Example:
        >>> trained = bvat.train(graph, bvat.preset("", "none", epochs=5))
        >>> figure = bvat.plot(trained)  # or trained.plot()
        >>> figure.save("training.svg")
    """
    audits = [thing for thing in things if isinstance(thing, Audit)]
    if audits and len(audits) == len(things):
        names = [f"audit {k + 1}" if len(audits) > 1 else "nodes" for k in range(len(audits))]
        charts = distribution_charts(list(zip(names, audits, strict=True)))
        return Figure(standalone("How fragile the predictions are", charts))
    models = [_trained(thing) for thing in things]
    if not models:
        raise SettingsError("nothing to plot: give a TrainedModel, a fitted NodeClassifier or an Audit")
    many = f"{len(models)} seeds" if len(models) > 1 else f"seed {models[0].seed}"
    return Figure(standalone(f"Training, {many}", training_charts(_curves(models))))


def _trained(thing: Any) -> TrainedModel:
    found = thing.training_ if isinstance(thing, NodeClassifier) else thing
    if isinstance(found, TrainedModel):
        return found
    what = "an unfitted or loaded NodeClassifier" if found is None else f"a {type(thing).__name__}"
    raise SettingsError(
        f"{what} cannot be plotted: give TrainedModels and fitted NodeClassifiers, or only Audits"
    )


def _curves(models: Sequence[TrainedModel]) -> list[Curves]:
    return [{name: [row[name] for row in m.metrics] for name in m.metrics[0]} for m in models]
