"""The table of baselines: one row per baseline. Importing it imports nothing heavy.

To add a baseline, write one file with a function that fits it and add one row here (see CONTRIBUTING.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bvat.errors import SettingsError, shown
from bvat.models.options import Options, option
from bvat.models.table import MODELS
from bvat.perturb.methods import METHODS
from bvat.plugins import Home, Table, imported

AUTO = "auto"
"""The ensemble for few labels."""


@dataclass(frozen=True, kw_only=True)
class AutoOptions(Options):
    effort: int = option(2, "work: 1 linear members only, 2 a network too, 3 and 4 more of them with "
                         "regularisers", at_least=1, at_most=4)  # fmt: skip
    neighbours: str = option("auto", "edges that are used: the given ones, those between nodes with similar "
                             "features, their union, or what suits",
                             choices=("auto", "given", "features", "both"))  # fmt: skip
    k: int = option(10, "similar nodes that each node is joined with", at_least=1, at_most=1000)
    metric: str = option("cosine", "how features are compared", choices=("cosine", "euclidean"))
    single: bool = option(False, "keep the member with the largest weight alone")


@dataclass(frozen=True)
class Baseline:
    """A classifier that ``--method`` names.

    Args:
        name: what ``--method`` and :class:`bvat.Settings` call it.
        title: its row in tables.
        home: ``module:function``, or the function itself, called as ``fit(graph, seed)``; returns a
            :class:`bvat.baselines.base.Fit`.
        model: ``module:class`` of the fitted model, called with its tensors as keywords; another than the
            default predicts graphs that it was not fitted to.
        random: whether its result depends on the seed.
        shares: whether it computes something that another baseline also needs: its function takes a
            :class:`bvat.baselines.base.Once` as ``once``.
        options: its settings; if it has any, its function takes them as ``options``.
        colour: its place in the palette of charts.
    """

    name: str
    title: str
    home: Home
    model: Home = "bvat.baselines.base:NodeTable"
    random: bool = True
    shares: bool = False
    options: type[Options] = Options
    colour: int = 7

    @property
    def short(self) -> str:
        return self.title

    def fit(self, graph: Any, seed: int, options: Options, **shared: Any) -> Any:
        """Fit it to a graph on the CPU; return a :class:`bvat.baselines.base.Fit`.

        ``shared`` is nothing, or ``once`` if the baseline ``shares``.
        """
        own = {} if self.options is Options else {"options": options}
        return imported(self.home)(graph, seed, **own, **shared)

    def restore(self, weights: Mapping[str, Any], features: int, classes: int) -> Any:
        """Return the fitted model with these tensors; ValueError if they are not its own."""
        try:
            model = imported(self.model)(**weights)
        except TypeError:
            raise ValueError(f"the tensors are not those of {self.name}") from None
        model.check(features, classes)
        return model


_SMOOTH, _PLANETOID = "bvat.baselines.smooth", "bvat.baselines.planetoid"
_OF_TABLE2 = [
    Baseline("manireg", "ManiReg", f"{_SMOOTH}:fit_manireg", f"{_SMOOTH}:Linear", random=False, colour=1),
    Baseline("semiemb", "SemiEmb", f"{_SMOOTH}:fit_semiemb", f"{_SMOOTH}:Embedding", colour=2),
    Baseline("lp", "LP", "bvat.baselines.lp:fit", random=False, colour=0),
    Baseline("deepwalk", "DeepWalk", "bvat.baselines.deepwalk:fit", colour=4),
    Baseline("planetoid-t", "Planetoid-T", f"{_PLANETOID}:fit_t", shares=True, colour=5),
    Baseline("planetoid-i", "Planetoid-I", f"{_PLANETOID}:fit_i", f"{_PLANETOID}:Inductive", colour=6),
    Baseline("planetoid-g", "Planetoid-G", f"{_PLANETOID}:fit_g", shares=True, colour=3),
]
_ENSEMBLE = Baseline(
    AUTO, AUTO, "bvat.tuning.auto:fit", "bvat.models.ensemble:Ensemble", True, True, AutoOptions, 3
)
BASELINES = Table("bvat.baselines", Baseline, (*_OF_TABLE2, _ENSEMBLE), METHODS, MODELS)
"""By name: those of the paper's Table 2 in its order, then our own."""
PUBLISHED = tuple(row.name for row in _OF_TABLE2)
"""The baselines of the paper's Table 2."""


def register(row: Any) -> None:
    """Add a method, a model, a baseline or a data set for as long as this program runs.

    Packages name such rows in entry points instead, see :mod:`bvat.plugins`. Parallel processes run the
    script again: register at its top level, not under ``if __name__ == "__main__":``.

    Args:
        row: a :class:`bvat.MethodRow`, :class:`bvat.Model`, :class:`bvat.Baseline` or
            :class:`bvat.DatasetRow`.

    Example:
        >>> bvat.register(bvat.MethodRow("shout", "GCN + shout", "VAT under another name", home=bvat.VAT))
        >>> bvat.Settings("shout").beta
        1.0
    """
    from bvat.data.loading import DATASETS

    named: list[Table[Any]] = [MODELS, METHODS, BASELINES]
    table = next((table for table in (*named, DATASETS) if isinstance(row, table.kind)), None)
    if table is None:
        raise SettingsError(f"{shown(row)} is no MethodRow, Model, Baseline or DatasetRow")
    if table is not DATASETS and any(row.name in other for other in named):
        raise SettingsError(f"the name {row.name!r} is taken: choose another one")
    table.register(row)


def all_methods() -> tuple[str, ...]:
    """Return every value of ``--method``."""
    return (*METHODS, *BASELINES)
