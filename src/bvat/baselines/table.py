"""The table of baselines: one row per baseline. Importing it imports nothing heavy.

To add a baseline, write one file with a function that fits it and add one row here (see CONTRIBUTING.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from bvat.models.options import Options, option
from bvat.perturb.methods import METHODS

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
        about: one line of help.
        home: ``module:function``, called as ``fit(graph, seed)``; returns a
            :class:`bvat.baselines.base.Fit`.
        model: ``module:class`` of the fitted model, called with its tensors as keywords.
        protocol: "transductive" if it reads the edges of test nodes, else "inductive".
        random: whether its result depends on the seed.
        shares: whether it computes something that another baseline also needs: its function takes a
            :class:`bvat.baselines.base.Once` as ``once``.
        options: its settings; if it has any, its function takes them as ``options``.
        paper: whether it is a row of the paper's Table 2.
        colour: its place in the palette of charts.
    """

    name: str
    title: str
    about: str
    home: str
    model: str = "bvat.baselines.base:NodeTable"
    protocol: str = "transductive"
    random: bool = True
    shares: bool = False
    options: type[Options] = Options
    paper: bool = True
    colour: int = 7

    @property
    def short(self) -> str:
        return self.title

    def fit(self, graph: Any, seed: int, options: Options, **shared: Any) -> Any:
        """Fit it to a graph on the CPU; return a :class:`bvat.baselines.base.Fit`.

        ``shared`` is nothing, or ``once`` if the baseline ``shares``.
        """
        own = {} if self.options is Options else {"options": options}
        return _load(self.home)(graph, seed, **own, **shared)

    def restore(self, weights: Mapping[str, Any], features: int, classes: int) -> Any:
        """Return the fitted model with these tensors; ValueError if they are not its own."""
        try:
            model = _load(self.model)(**weights)
        except TypeError:
            raise ValueError(f"the tensors are not those of {self.name}") from None
        model.check(features, classes)
        return model


def _load(home: str) -> Callable[..., Any]:
    module, _, name = home.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


_ROWS = [
    Baseline(
        "manireg",
        "ManiReg",
        "linear softmax whose predictions differ little along edges (Belkin et al., 2006)",
        "bvat.baselines.smooth:fit_manireg",
        model="bvat.baselines.smooth:Linear",
        protocol="inductive",
        random=False,
        colour=1,
    ),
    Baseline(
        "semiemb",
        "SemiEmb",
        "one hidden layer that differs little along edges (Weston et al., 2012)",
        "bvat.baselines.smooth:fit_semiemb",
        model="bvat.baselines.smooth:Embedding",
        protocol="inductive",
        colour=2,
    ),
    Baseline(
        "lp",
        "LP",
        "label propagation: local and global consistency (Zhou et al., 2004)",
        "bvat.baselines.lp:fit",
        random=False,
        colour=0,
    ),
    Baseline(
        "deepwalk",
        "DeepWalk",
        "skip-gram on random walks, then logistic regression (Perozzi et al., 2014)",
        "bvat.baselines.deepwalk:fit",
        colour=4,
    ),
    Baseline(
        "planetoid-t",
        "Planetoid-T",
        "embedding of nodes that predicts contexts and labels, beside the features (Yang et al., 2016)",
        "bvat.baselines.planetoid:fit_t",
        shares=True,
        colour=5,
    ),
    Baseline(
        "planetoid-i",
        "Planetoid-I",
        "the same with an embedding that is a function of the features",
        "bvat.baselines.planetoid:fit_i",
        model="bvat.baselines.planetoid:Inductive",
        protocol="inductive",
        colour=6,
    ),
    Baseline(
        "planetoid-g",
        "Planetoid-G",
        "the same with an embedding of nodes and without features",
        "bvat.baselines.planetoid:fit_g",
        shares=True,
        colour=3,
    ),
    Baseline(
        AUTO,
        "auto",
        "an ensemble of linear classifiers and networks, weighted by cross-validation",
        "bvat.tuning.auto:fit",
        model="bvat.models.ensemble:Ensemble",
        shares=True,
        options=AutoOptions,
        paper=False,
        colour=3,
    ),
]

BASELINES: dict[str, Baseline] = {baseline.name: baseline for baseline in _ROWS}
"""By name: those of the paper's Table 2 in its order, then our own."""


PUBLISHED = tuple(row.name for row in _ROWS if row.paper)
"""The baselines of the paper's Table 2."""
ALL_METHODS = (*METHODS, *BASELINES)
"""Every value of ``--method``."""
