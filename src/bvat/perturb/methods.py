"""The table of training methods: one row per method, with its settings.

Settings, training, tuning, benchmarks, tables, figures, pages and ``--help`` read it. Importing it imports
nothing heavy. To add a method, write one file with a callable like :class:`bvat.perturb.Regulariser` and add
one row here (see CONTRIBUTING.md). The defaults are those for any graph, in ``bvat train`` as in
``bvat.VAT()``; presets.toml has those of the paper's data sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from bvat.models.options import Options, like, option
from bvat.models.table import MODELS
from bvat.plugins import Home, Table, imported

PLAIN = "none"
"""The method without a regulariser."""
SEVERAL = ("samples", 2)
"""The condition of what only several passes read."""


@dataclass(frozen=True, kw_only=True)
class PlainOptions(Options):
    """Of every method: the entropy of Eq. 6, and several passes that must agree (GRAND)."""

    alpha: float = option(0.0, "weight of the entropy of the predictions", at_least=0)
    samples: int = option(1, "passes per epoch, each with its own dropout, whose predictions must agree; "
                          "more than 1 for grand", at_least=1, at_most=1000)  # fmt: skip
    agreement: float = option(1.0, "weight of the distance of these predictions from their sharpened mean",
                              at_least=0, only=SEVERAL)  # fmt: skip
    temperature: float = option(0.5, "how sharp that mean is made: 1 leaves it as it is", above=0, at_most=1,
                                only=SEVERAL)  # fmt: skip
    masks: str = option("reuse", "masks of perturbed passes: drawn for each, once for all, once but the "
                        "features' as in the clean pass, or all as there",
                        choices=("fresh", "pair", "reuse", "shared"), only=SEVERAL)  # fmt: skip
    divergence: str = option("kl", "how predictions are compared", choices=("kl", "squared"), only=SEVERAL)
    confidence: float = option(0.0, "regularise only nodes whose clean prediction has at least this "
                               "probability", at_least=0, below=1, only=SEVERAL)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RegulariserOptions(PlainOptions):
    """Of every :class:`bvat.perturb.Regulariser`."""

    alpha: float = like(PlainOptions, "alpha", 0.3)
    beta: float = option(1.0, "weight of the regulariser R_vadv", at_least=0)
    space: str = option("auto", "perturbation space", choices=("auto", "dense", "sparse", "factored"))
    masks: str = like(PlainOptions, "masks", "reuse", only=None)
    divergence: str = like(PlainOptions, "divergence", "kl", only=None)
    confidence: float = like(PlainOptions, "confidence", 0.0, only=None)


@dataclass(frozen=True, kw_only=True)
class ConsistencyOptions(RegulariserOptions):
    masks: str = like(RegulariserOptions, "masks", "pair")


@dataclass(frozen=True, kw_only=True)
class RandomOptions(RegulariserOptions):
    epsilon: float = option(0.3, "length of a perturbation", at_least=0)


@dataclass(frozen=True, kw_only=True)
class VATOptions(RandomOptions):
    epsilon: float = like(RandomOptions, "epsilon", 0.05)
    steps: int = option(1, "steps T of the search", at_least=0, at_most=10_000)
    xi: float = option(1e-6, "length of the probe of a power iteration", above=0)


@dataclass(frozen=True, kw_only=True)
class SBVATOptions(VATOptions):
    count: int = option(100, "number of sampled nodes B", at_least=1)
    norm: str = option(
        "row", "what epsilon measures: each row, or each receptive field", choices=("row", "field")
    )


@dataclass(frozen=True, kw_only=True)
class OBVATOptions(RegulariserOptions):
    search: str = option("fast", "how obvat searches: Adam, or few full steps of length epsilon",
                         choices=("adam", "fast"))  # fmt: skip
    steps: int = like(VATOptions, "steps", 1)
    epsilon: float = like(VATOptions, "epsilon", 0.01, only=("search", "fast"))
    step_size: float = option(0.001, "step of the search", above=0, only=("search", "adam"))
    gamma: float = option(1.0, "weight of the penalty on the perturbation's length", at_least=0,
                          only=("search", "adam"))  # fmt: skip
    start: float = option(0.01, "standard deviation of the search's start", at_least=0,
                          only=("search", "adam"))  # fmt: skip
    reduction: str = option("sum", "Eq. 10 with KL summed over nodes, or averaged as printed",
                            choices=("sum", "mean"), only=("search", "adam"))  # fmt: skip
    keep_moments: bool = option(False, "keep the search's Adam moments from epoch to epoch",
                                only=("search", "adam"))  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FLAGOptions(PlainOptions):
    beta: float = like(RegulariserOptions, "beta", 1.0)
    space: str = like(RegulariserOptions, "space", "auto")
    masks: str = like(RegulariserOptions, "masks", "reuse")
    steps: int = like(VATOptions, "steps", 3, at_least=1)
    step_size: float = like(OBVATOptions, "step_size", 0.005, only=None)


@dataclass(frozen=True, kw_only=True)
class GRANDOptions(PlainOptions):
    samples: int = like(PlainOptions, "samples", 4, at_least=2)
    agreement: float = like(PlainOptions, "agreement", 1.0, only=None)
    temperature: float = like(PlainOptions, "temperature", 0.5, only=None)
    masks: str = like(PlainOptions, "masks", "reuse", only=None)
    divergence: str = like(PlainOptions, "divergence", "squared", only=None)
    confidence: float = like(PlainOptions, "confidence", 0.0, only=None)


Span = Mapping[str, Any]
"""A range (``low``, ``high`` and either ``step`` or ``log``) or ``choices`` of a setting."""

_ALPHA: Span = {"low": 0.1, "high": 1.5, "step": 0.1}
_BETA: Span = {"low": 0.4, "high": 4.0, "step": 0.2}
_EPSILON: Span = {"low": 0.001, "high": 0.05, "log": True}
_MASKS: Span = {"choices": ["fresh", "pair", "reuse"]}
_ONE_PASS: Span = {"choices": ["fresh", "reuse"]}  # with one perturbed pass "pair" is "fresh"
_POWER: Span = {"alpha": _ALPHA, "beta": _BETA, "epsilon": _EPSILON, "masks": _MASKS}
_WEIGHTS = {"alpha", "beta", "samples", "agreement", "temperature"}
"""What the training step reads itself."""


@dataclass(frozen=True)
class MethodRow:
    """A way to train.

    Args:
        name: what ``--method`` and :class:`bvat.Settings` call it.
        title: its row in tables.
        about: one line of help: which nodes, and how the perturbation is found.
        options: its settings.
        home: ``module:callable``, or the callable itself, called with these settings as keywords, ``masks``
            as ``dropout``, and a ``generator``; returns the regulariser. Empty for none.
        colour: its place in the palette of charts.
        effort: time of an epoch in units of a GCN's, roughly; for the estimate of the remaining time only.
        space: what ``bvat tune`` searches: a span per setting; ``when`` holds spans that apply only where a
            setting has some value. Values on a logarithmic scale are rounded to two digits.
        auto: the lowest effort at which ``auto`` also trains a GCN with it, if it is not bvat's; 0: never.
    """

    name: str
    title: str
    about: str
    options: type[Options] = RegulariserOptions
    home: Home = ""
    colour: int = 3
    effort: float = 1.0
    space: Mapping[str, Any] = field(default_factory=dict)
    auto: int = 0

    @property
    def short(self) -> str:
        return self.title.removeprefix("GCN + ")

    def build(self, options: Options, generator: Any = None) -> Any:
        """Return the regulariser with some settings; None for a method that has none."""
        if not self.home:
            return None
        own = {f.name for f in fields(options) if f.metadata.get("only") != SEVERAL} & options.read()
        taken = {name: getattr(options, name) for name in own - _WEIGHTS}
        return imported(self.home)(dropout=taken.pop("masks"), generator=generator, **taken)


_ROWS = [
    MethodRow(PLAIN, "GCN", "no regulariser: the plain model", PlainOptions, colour=7),
    MethodRow(
        "consistency",
        "GCN + consistency",
        "all nodes, R = 0: two dropout passes must agree (an ablation that the paper does not have)",
        ConsistencyOptions,
        "bvat.perturb.shorthands:Consistency",
        colour=4,
        effort=2.0,
        space={"alpha": _ALPHA, "beta": _BETA, "masks": _ONE_PASS},
    ),
    MethodRow(
        "random",
        "GCN + random",
        "all nodes, a Gaussian direction of length epsilon",
        RandomOptions,
        "bvat.perturb.shorthands:Random",
        colour=5,
        effort=2.2,
        space={**_POWER, "epsilon": {"low": 0.003, "high": 0.3, "log": True}, "masks": _ONE_PASS},
    ),
    MethodRow(
        "vat",
        "GCN + VAT",
        "all nodes, power iteration",
        VATOptions,
        "bvat.perturb.shorthands:VAT",
        colour=0,
        effort=2.7,
        space=_POWER,
    ),
    MethodRow(
        "sbvat",
        "GCN + S-BVAT",
        "nodes with disjoint receptive fields, power iteration in each field",
        SBVATOptions,
        "bvat.perturb.shorthands:SBVAT",
        colour=1,
        effort=2.0,
        space=_POWER,
    ),
    MethodRow(
        "obvat",
        "GCN + O-BVAT",
        "all nodes, Adam on one matrix for all (--search adam) or a few full steps (--search fast)",
        OBVATOptions,
        "bvat.perturb.shorthands:OBVAT",
        colour=2,
        effort=6.0,
        space={
            "alpha": _ALPHA,
            "beta": _BETA,
            "masks": _MASKS,
            "when": {
                "search": {
                    "adam": {
                        "step_size": {"low": 3e-5, "high": 2e-3, "log": True},
                        "start": {"low": 1e-4, "high": 1e-2, "log": True},
                        "gamma": {"low": 0.1, "high": 10.0, "log": True},
                        "reduction": {"choices": ["sum", "mean"]},
                    },
                    "fast": {"epsilon": {"low": 0.0003, "high": 0.05, "log": True}},
                }
            },
        },
    ),
    MethodRow(
        "flag",
        "GCN + FLAG",
        "all nodes, signed steps up the supervised loss, averaged over the steps (Kong et al., 2020)",
        FLAGOptions,
        "bvat.perturb.flag:FLAG",
        colour=6,
        effort=3.5,
        space={
            "alpha": {"low": 0.0, "high": 1.0, "step": 0.1},
            "step_size": {"low": 1e-4, "high": 3e-2, "log": True},
            "steps": {"choices": [1, 2, 3, 5]},
        },
    ),
    MethodRow(
        "grand",
        "GCN + GRAND",
        "all nodes, R = 0: several dropout passes must agree with their sharpened mean (Feng et al., 2020)",
        GRANDOptions,
        colour=7,
        effort=4.0,
        space={
            "agreement": {"low": 0.5, "high": 2.0, "step": 0.1},
            "temperature": {"low": 0.2, "high": 0.8, "step": 0.1},
            "samples": {"choices": [2, 4, 6]},
            "lr": {"choices": [0.01, 0.02]},
        },
    ),
]

METHODS = Table("bvat.methods", MethodRow, _ROWS, MODELS)
"""By name, in the order of tables."""

ON_GCN: dict[str, MethodRow] = {"gcn" if row.name == PLAIN else row.name: row for row in _ROWS}
"""bvat's own as rows of tables, where a plain GCN is called ``gcn``."""
