"""The table of training methods: one row per method.

Settings, the builder, tuning, benchmarks, tables, figures, pages and ``--help`` read it. Importing it imports
nothing heavy. To add a method, write one file that builds it and add one row here (see CONTRIBUTING.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

PLAIN = "none"
"""The method without a regulariser."""
Span = Mapping[str, Any]
"""A range (``low``, ``high`` and either ``step`` or ``log``) or ``choices`` of a setting."""

_ALPHA: Span = {"low": 0.1, "high": 1.5, "step": 0.1}
_BETA: Span = {"low": 0.4, "high": 4.0, "step": 0.2}
_EPSILON: Span = {"low": 0.001, "high": 0.05, "log": True}
_MASKS: Span = {"choices": ["fresh", "pair", "reuse"]}
_ONE_PASS: Span = {"choices": ["fresh", "reuse"]}  # with one perturbed pass "pair" is "fresh"
_SHARED = ("beta", "space", "masks", "divergence", "confidence")
"""What every :class:`bvat.perturb.Regulariser` reads."""


@dataclass(frozen=True)
class Method:
    """A way to train.

    Args:
        name: what ``--method`` and :class:`bvat.Settings` call it.
        title: its row in tables.
        about: one line of help: which nodes, and how the perturbation is found.
        build: ``module:function`` called with the settings and the options that all regularisers share
            (space, dropout, divergence, generator, confidence); returns the regulariser. Empty for none.
        colour: its place in the palette of charts.
        effort: time of an epoch in units of a GCN's, roughly; for the estimate of the remaining time only.
        arguments: the settings that it reads, beside those of the model and of training in general.
        when: further ones that it reads only where a setting has some value.
        space: what ``bvat tune`` searches: a span per setting; ``when`` holds spans that apply only where a
            setting has some value. Values on a logarithmic scale are rounded to two digits.
    """

    name: str
    title: str
    about: str
    build: str = ""
    colour: int = 3
    effort: float = 1.0
    arguments: tuple[str, ...] = ()
    when: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    space: Mapping[str, Any] = field(default_factory=dict)

    def reads(self, settings: Any) -> set[str]:
        """Return the names of the settings that it reads if they have these values."""
        parts = (values.get(getattr(settings, name), ()) for name, values in self.when.items())
        return set(self.arguments).union(*parts)

    @property
    def short(self) -> str:
        """Its name in figures."""
        return self.title.removeprefix("GCN + ")

    def builder(self) -> Callable[[Any, dict[str, Any]], Any] | None:
        """Return the function that builds the regulariser; None where there is none."""
        if not self.build:
            return None
        module, _, name = self.build.partition(":")
        found: Callable[[Any, dict[str, Any]], Any] = getattr(import_module(module), name)
        return found


_ROWS = [
    Method(PLAIN, "GCN", "no regulariser: the plain model", colour=7),
    Method(
        "consistency",
        "GCN + consistency",
        "all nodes, R = 0: two dropout passes must agree (an ablation that the paper does not have)",
        build="bvat.perturb.build:consistency",
        arguments=_SHARED,
        colour=4,
        effort=2.0,
        space={"alpha": _ALPHA, "beta": _BETA, "masks": _ONE_PASS},
    ),
    Method(
        "random",
        "GCN + random",
        "all nodes, a Gaussian direction of length epsilon",
        build="bvat.perturb.build:random",
        arguments=(*_SHARED, "epsilon"),
        colour=5,
        effort=2.2,
        space={
            "alpha": _ALPHA,
            "beta": _BETA,
            "epsilon": {"low": 0.003, "high": 0.3, "log": True},
            "masks": _ONE_PASS,
        },
    ),
    Method(
        "vat",
        "GCN + VAT",
        "all nodes, power iteration",
        build="bvat.perturb.build:vat",
        arguments=(*_SHARED, "epsilon", "steps", "xi"),
        colour=0,
        effort=2.7,
        space={"alpha": _ALPHA, "beta": _BETA, "epsilon": _EPSILON, "masks": _MASKS},
    ),
    Method(
        "sbvat",
        "GCN + S-BVAT",
        "nodes with disjoint receptive fields, power iteration in each field",
        build="bvat.perturb.build:sbvat",
        arguments=(*_SHARED, "epsilon", "steps", "xi", "count", "norm"),
        colour=1,
        effort=2.0,
        space={"alpha": _ALPHA, "beta": _BETA, "epsilon": _EPSILON, "masks": _MASKS},
    ),
    Method(
        "obvat",
        "GCN + O-BVAT",
        "all nodes, Adam on one matrix for all (--search adam) or a few full steps (--search fast)",
        build="bvat.perturb.build:obvat",
        arguments=(*_SHARED, "search", "steps"),
        when={
            "search": {
                "adam": ("step_size", "gamma", "start", "reduction", "keep_moments", "second_moment"),
                "fast": ("epsilon",),
            }
        },
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
    Method(
        "flag",
        "GCN + FLAG",
        "all nodes, signed steps up the supervised loss, averaged over the steps (Kong et al., 2020)",
        build="bvat.perturb.flag:build",
        arguments=("beta", "space", "masks", "steps", "step_size"),
        colour=6,
        effort=3.5,
        space={
            "alpha": {"low": 0.0, "high": 1.0, "step": 0.1},
            "step_size": {"low": 1e-4, "high": 3e-2, "log": True},
            "steps": {"choices": [1, 2, 3, 5]},
        },
    ),
    Method(
        "grand",
        "GCN + GRAND",
        "all nodes, R = 0: several dropout passes must agree with their sharpened mean (Feng et al., 2020)",
        arguments=("samples", "agreement", "temperature", "masks", "divergence", "confidence"),
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

METHODS: dict[str, Method] = {method.name: method for method in _ROWS}
"""By name, in the order of tables."""

ON_GCN: dict[str, Method] = {"gcn" if name == PLAIN else name: row for name, row in METHODS.items()}
"""As rows of tables, where a plain GCN is called ``gcn``."""
