"""Everything that can be set about a training run, and the presets.

This module imports nothing heavy: the command line reads its fields to build ``--help``.
"""

from __future__ import annotations

import math
import numbers
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

from bvat.baselines.table import ALL_METHODS, BASELINES
from bvat.errors import SettingsError
from bvat.models.table import MODELS
from bvat.perturb.methods import METHODS, PLAIN

LARGEST_INT, LARGEST_FLOAT = 10**9, 3e38
"""Larger numbers are beyond float32."""
LOSS_RULES = ("accuracy", "loss", "both")
"""Values of ``select`` that need the validation loss of every epoch."""


def _setting(default: Any, text: str, *, choices: tuple[str, ...] = (), at_least: float | None = None,
             at_most: float | None = None, above: float | None = None,
             below: float | None = None, later: bool = False,
             phase: int = 1) -> Any:  # fmt: skip
    """Declare a field with its line of help and its allowed range.

    ``later`` marks a field that earlier versions lacked: its default is what they did. ``phase`` is 2 for a
    field that nothing reads in the first of two phases.
    """
    return field(
        default=default,
        metadata={
            "help": text,
            "choices": choices,
            "at_least": at_least,
            "at_most": at_most,
            "above": above,
            "below": below,
            "later": later,
            "phase": phase,
        },
    )


_phase_2 = partial(_setting, phase=2)
"""Declare a field that only the regulariser and the second of two phases read."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a run. Each field is an option of ``bvat train`` and a key of the preset file."""

    method: str = _phase_2("obvat", "training method", choices=ALL_METHODS)
    model: str = _setting("gcn", "model", choices=tuple(MODELS))
    hidden: int = _setting(16, "width of the hidden layers", at_least=1, at_most=2**16)
    layers: int = _setting(2, "number of layers K", at_least=1, at_most=1000)
    dropout: float = _setting(0.5, "dropout rate", at_least=0, below=1)
    heads: int = _setting(8, "attention heads of the hidden layers (gat)", at_least=1, at_most=1000)
    output_heads: int = _setting(1, "attention heads of the last layer, which are averaged (gat)", at_least=1,
                                 at_most=1000, later=True)  # fmt: skip
    kernels: int = _setting(3, "Gaussian kernels per layer (monet)", at_least=1, at_most=1000, later=True)
    coordinates: int = _setting(2, "pseudo-coordinates of an edge (monet)", at_least=1, at_most=1000,
                                later=True)  # fmt: skip
    aggregation: str = _setting("sum", "sum or mean over the neighbours of a node (monet)",
                                choices=("sum", "mean"), later=True)  # fmt: skip
    clusters: int = _setting(5, "clusters that the nodes are divided into (gpnn)", at_least=1,
                             at_most=100_000, later=True)  # fmt: skip
    partition: str = _setting("flood", "how: growing from random nodes, or by the eigenvectors of the graph "
                              "(gpnn)", choices=("flood", "spectral"), later=True)  # fmt: skip
    readout_layers: int = _setting(0, "hidden layers of the readout, twice as wide as the others (gpnn)",
                                   at_least=0, at_most=100, later=True)  # fmt: skip
    power_steps: int = _setting(10, "steps of the propagation (appnp, random-propagation)", at_least=0,
                                at_most=10_000)  # fmt: skip
    teleport: float = _setting(0.1, "share of its own prediction or features that a node keeps per step "
                               "(appnp, random-propagation)", at_least=0, at_most=1)  # fmt: skip
    spread: str = _setting("pagerank", "weights of the steps: falling by 1 - teleport, or all equal "
                           "(random-propagation)", choices=("pagerank", "mean"), later=True)  # fmt: skip
    node_dropout: float = _setting(0.5, "share of the nodes whose features a pass drops (random-propagation)",
                                   at_least=0, below=1, later=True)  # fmt: skip
    input_dropout: float = _setting(0.5, "share of the feature columns that a pass drops "
                                    "(random-propagation)", at_least=0, below=1, later=True)  # fmt: skip
    batch_norm: bool = _setting(
        False,
        "normalise hidden layers over the nodes, and learn a factor for every feature column "
        "(random-propagation)",
        later=True,
    )
    epochs: int = _setting(200, "number of epochs", at_least=1)
    lr: float = _setting(0.01, "Adam's learning rate", above=0)
    schedule: str = _setting("constant", "learning rate: constant, or falling to 0 along a cosine",
                             choices=("constant", "cosine"), later=True)  # fmt: skip
    first_lr: float = _setting(1.0, "factor of the learning rate of the first layer", above=0, later=True)
    weight_decay: float = _setting(5e-4, "L2 penalty", at_least=0)
    decay: str = _setting("first", "what the L2 penalty is on: the first layer or all parameters",
                          choices=("first", "all"), later=True)  # fmt: skip
    clip: float = _setting(0.0, "largest length of the gradient of all weights; 0: no limit", at_least=0,
                           later=True)  # fmt: skip
    adam_epsilon: float = _setting(1e-8, "added to the root in Adam's divisor", above=0, later=True)
    average: float = _setting(0.0, "use a moving average of the weights that keeps this share of itself per "
                              "epoch; 0: none", at_least=0, below=1, later=True)  # fmt: skip
    class_weights: str = _setting("none", "how much a labelled node counts in the supervised loss: the same "
                                  "for all, or balanced, so that every class counts the same",
                                  choices=("none", "balanced"), later=True)  # fmt: skip
    scale: str = _setting("none", "features as they are, times one factor that makes the root mean square "
                          "length of their rows 1 (epsilon is then a share of that length), or with columns "
                          "of about the same variance", choices=("none", "unit", "columns"))  # fmt: skip
    select: str = _setting("last", "epoch whose weights are kept: the last, the first with the best "
                           "validation accuracy, the best by accuracy with ties decided by the validation "
                           "loss, the one with the lowest validation loss, or the last at which neither "
                           "was worse than ever before (both)",
                           choices=("last", "best", *LOSS_RULES))  # fmt: skip
    patience: int = _setting(0, "stop after this many epochs without better validation; 0: never", at_least=0)
    pretrain: int = _setting(0, "epochs at most without regulariser; the best of them is where regularised "
                             "training starts, and what is kept if that brings nothing; 0: no such phase",
                             at_least=0)  # fmt: skip
    margin: float = _phase_2(0.0, "points of validation accuracy that regularised training must gain over "
                             "the phase before to be kept", at_least=0)  # fmt: skip
    ramp: int = _phase_2(0, "epochs over which alpha and beta grow to their values", at_least=0)
    guard: bool = _phase_2(False, "weaken the regulariser when predictions collapse")
    alpha: float = _phase_2(0.7, "weight of the entropy of the predictions", at_least=0)
    beta: float = _phase_2(1.2, "weight of the regulariser R_vadv", at_least=0)
    samples: int = _phase_2(1, "passes per epoch, each with its own dropout, whose predictions must agree; "
                            "more than 1 for grand", at_least=1, at_most=1000, later=True)  # fmt: skip
    agreement: float = _phase_2(1.0, "weight of the distance of these predictions from their sharpened mean",
                                at_least=0, later=True)  # fmt: skip
    temperature: float = _phase_2(0.5, "how sharp that mean is made: 1 leaves it as it is", above=0,
                                  at_most=1, later=True)  # fmt: skip
    space: str = _phase_2("auto", "perturbation space", choices=("auto", "dense", "sparse", "factored"))
    masks: str = _phase_2("fresh", "masks of perturbed passes: drawn for each, once for all, once but the "
                          "features' as in the clean pass, or all as there",
                          choices=("fresh", "pair", "reuse", "shared"))  # fmt: skip
    confidence: float = _phase_2(0.0, "regularise only nodes whose clean prediction has at least this "
                                 "probability", at_least=0, below=1)  # fmt: skip
    divergence: str = _phase_2("kl", "how predictions are compared", choices=("kl", "squared"))
    epsilon: float = _phase_2(
        0.03, "length of a perturbation (random, vat, sbvat, obvat with fast search)", at_least=0
    )
    norm: str = _phase_2("row", "what epsilon measures: each row, or each receptive field (sbvat only)",
                         choices=("row", "field"))  # fmt: skip
    xi: float = _phase_2(1e-6, "length of the probe of a power iteration (vat, sbvat)", above=0)
    search: str = _phase_2("adam", "how obvat searches: Adam, or few full steps of length epsilon",
                           choices=("adam", "fast"))  # fmt: skip
    steps: int = _phase_2(1, "steps T of the search (vat, sbvat, obvat)", at_least=0, at_most=10_000)
    count: int = _phase_2(100, "number of sampled nodes B (sbvat)", at_least=1)
    step_size: float = _phase_2(0.001, "Adam's step in the search (obvat)", above=0)
    gamma: float = _phase_2(1.0, "weight of the penalty on the perturbation's length (obvat)", at_least=0)
    start: float = _phase_2(0.01, "standard deviation of the search's start (obvat)", at_least=0)
    reduction: str = _phase_2("sum", "Eq. 10 with KL summed over nodes, or averaged as printed (obvat)",
                              choices=("sum", "mean"))  # fmt: skip
    second_moment: str = _phase_2("entry", "second moment of the search's Adam: of an entry, or of a row, "
                                  "which is the same in every space (obvat)",
                                  choices=("entry", "row"))  # fmt: skip
    keep_moments: bool = _phase_2(False, "keep the search's Adam moments from epoch to epoch (obvat)")
    variant: str = _setting("", "form of a baseline: " + "; ".join(
        f"{' or '.join(row.variants)} ({name})" for name, row in BASELINES.items() if row.variants
    ), later=True)  # fmt: skip

    def __post_init__(self) -> None:
        for f in fields(self):
            value = _plain(getattr(self, f.name), type(f.default))
            object.__setattr__(self, f.name, value)
            _check(f.name, value, type(f.default), f.metadata)
        _check_baseline(self)
        if self.method == "grand" and self.samples < 2:
            raise SettingsError(f"grand compares several passes: use samples 2 or more, not {self.samples}")
        if self.norm == "field" and self.method != "sbvat":
            raise SettingsError("norm 'field' needs the disjoint receptive fields of sbvat: use norm 'row'")
        if self.pretrain >= self.epochs and self.pretrain:
            raise SettingsError(
                f"pretrain must be below epochs, which counts both phases, not {self.pretrain} of "
                f"{self.epochs}"
            )

    def read(self) -> set[str]:
        """Return the names of the settings that have an effect on this method and model."""
        if self.method in BASELINES:
            return {"method", "model", *(["variant"] if BASELINES[self.method].variants else [])}
        common = {f.name for f in fields(self)} - set(_owners())
        own = METHODS[self.method].reads(self) | set(MODELS[self.model].arguments)
        # with several passes, any method does what grand does
        return common | own | (METHODS["grand"].reads(self) if self.samples > 1 else set())

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        return asdict(self)

    def identity(self) -> dict[str, Any]:
        """Return the settings that identify a result.

        Fields that earlier versions lacked are left out while they have their default, so that runs made
        before such a field was added are found again.
        """
        kept = [f for f in fields(self) if not f.metadata["later"] or getattr(self, f.name) != f.default]
        return {f.name: getattr(self, f.name) for f in kept}

    def first_phase(self) -> dict[str, Any]:
        """Return the settings that the first of two phases depends on: methods that agree in them share it.

        Every field counts but those that only the second phase reads. A new field counts unless it is
        declared otherwise, so that forgetting it costs time and never a number.
        """
        later = {f.name for f in fields(self) if f.metadata["phase"] == 2}
        return {name: value for name, value in self.identity().items() if name not in later}


def _check_baseline(settings: Settings) -> None:
    """Raise SettingsError if a baseline is to run on a model, or in a form that it does not have."""
    row = BASELINES.get(settings.method)
    if row is not None and settings.model != "gcn":
        raise SettingsError(f"{row.name} is a classifier of its own: use it without --model {settings.model}")
    variants = row.variants if row is not None else ()
    if settings.variant and settings.variant not in variants:
        known = f"use one of {', '.join(variants)}" if variants else "leave it out"
        raise SettingsError(f"{settings.method} has no variant {settings.variant!r}: {known}")


def _plain(value: Any, kind: type) -> Any:
    """Return numpy's numbers as Python's, and whole numbers as floats where a float is expected."""
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    if kind is float and isinstance(value, numbers.Real):
        with suppress(OverflowError):  # a whole number with hundreds of digits
            return float(value)
    if kind is int and isinstance(value, numbers.Integral):
        return int(value)
    return value


def _check(name: str, value: Any, kind: Any, limits: Mapping[str, Any]) -> None:
    """Raise SettingsError unless ``value`` has the kind of the default and lies in its range."""
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise SettingsError(f"{name} must be of type {kind.__name__}, not {value!r}")
    if limits["choices"] and value not in limits["choices"]:
        raise SettingsError(f"{name} must be one of {', '.join(limits['choices'])}, not {value!r}")
    if kind in (int, float):
        if kind is float and not math.isfinite(value):
            raise SettingsError(f"{name} must be a finite number, not {value}")
        if limits["at_least"] is not None and value < limits["at_least"]:
            raise SettingsError(f"{name} must be at least {limits['at_least']}, not {value}")
        most = limits["at_most"] or (LARGEST_INT if kind is int else LARGEST_FLOAT)
        if value > most:
            raise SettingsError(f"{name} must be at most {most}, not {value}")
        if limits["above"] is not None and value <= limits["above"]:
            raise SettingsError(f"{name} must be above {limits['above']}, not {value}")
        if limits["below"] is not None and value >= limits["below"]:
            raise SettingsError(f"{name} must be below {limits['below']}, not {value}")


@cache
def _presets() -> dict[str, Any]:
    return tomllib.loads(resources.files("bvat.training").joinpath("presets.toml").read_text("utf-8"))


def preset(dataset: str, method: str, **overrides: Any) -> Settings:
    """Return the settings for a data set and a method, with ``overrides`` on top.

    The data sets of the paper have presets of their own, searched on their validation labels and meant to
    reproduce the paper. Every other graph, also ``""``, gets defaults that do not depend on its name:
    features scaled to unit length, a plain phase that the regularised one has to beat, and early stopping.

    Raises:
        SettingsError: an override is wrong, or is read by neither the method nor the model.
    """
    settings = _merged(dataset, method, overrides)
    for name in overrides:
        if name not in settings.read():
            raise SettingsError(_no_effect(name, settings))
    return settings


def preset_among(dataset: str, method: str, **overrides: Any) -> Settings:
    """Return the same for one of several methods: overrides that only others read are left out."""
    known = METHODS.get(method)
    switches = {"model", "samples", *(known.when if known else ())}  # what is read depends on them
    read = _merged(dataset, method, {k: v for k, v in overrides.items() if k in switches}).read()
    every = {f.name for f in fields(Settings)}
    return preset(dataset, method, **{k: v for k, v in overrides.items() if k in read or k not in every})


def check_read(overrides: Mapping[str, Any], methods: Iterable[Settings]) -> None:
    """Raise SettingsError if one of the overrides is read by none of the methods."""
    among = list(methods)
    for name in overrides:
        if among and not any(name in settings.read() for settings in among):
            raise SettingsError(_no_effect(name, *among))


def _merged(dataset: str, method: str, overrides: Mapping[str, Any]) -> Settings:
    if method not in ALL_METHODS:
        if method in MODELS:
            raise SettingsError(f"{method} is a model, not a method: use --model {method} --method {PLAIN}")
        raise SettingsError(f"there is no method {method!r}: use one of {', '.join(ALL_METHODS)}")
    model = overrides.get("model", "gcn")
    values: dict[str, Any] = {}
    for layer in _layers(dataset, method, model):
        values.update({key: value for key, value in layer.items() if not isinstance(value, dict)})
    unknown = set(overrides) - {f.name for f in fields(Settings)}
    if unknown:
        raise SettingsError(f"there is no setting {sorted(unknown)[0]!r}: see the fields of bvat.Settings")
    merged = {**values, **overrides, "method": method}
    if "epochs" in overrides and "pretrain" not in overrides and merged.get("pretrain"):
        plain = not merged.get("alpha") and not merged.get("beta")  # one phase, of all these epochs
        merged["pretrain"] = 0 if plain else min(merged["pretrain"], max(0, overrides["epochs"] * 3 // 4))
    return Settings(**merged)


@cache
def _owners() -> dict[str, list[str]]:
    """Return who reads each setting that not every network reads."""
    owners: dict[str, list[str]] = {}
    for model in MODELS.values():
        for name in model.arguments:
            owners.setdefault(name, []).append(model.name)
    for method in METHODS.values():
        for name in method.arguments:
            owners.setdefault(name, []).append(method.name)
        for switch, values in method.when.items():
            for value, names in values.items():
                for name in names:
                    owners.setdefault(name, []).append(f"{method.name} with {switch} {value}")
    for baseline in BASELINES.values():
        if baseline.variants:
            owners.setdefault("variant", []).append(baseline.name)
    return owners


def _no_effect(name: str, *among: Settings) -> str:
    """Return that a setting is read by none of these, and by whom it is."""
    methods = ", ".join(dict.fromkeys(settings.method for settings in among))
    models = ", ".join(dict.fromkeys(settings.model for settings in among))
    owners = _owners().get(name)
    if owners is None or (all(settings.method in BASELINES for settings in among) and name != "variant"):
        return f"{name} has no effect with {methods}, which trains no network: leave it out"
    whose = models if owners[0] in MODELS and name in MODELS[owners[0]].arguments else methods
    return f"{name} has no effect with {whose}: leave it out, it belongs to {', '.join(owners)}"


def _layers(dataset: str, method: str, model: str) -> list[dict[str, Any]]:
    """Return the tables of the preset file that apply; later ones win."""
    if method in BASELINES:  # they choose what they need themselves
        return [_presets()["baseline"]]
    return _paper_layers(dataset, method, model) if has_preset(dataset) else _any_layers(method, model)


def _paper_layers(dataset: str, method: str, model: str) -> list[dict[str, Any]]:
    """Return what applies to a data set of the paper; later tables win.

    Shared by all methods, the method, the data set; then for a GCN the pair of data set and method, which was
    searched with a GCN, and for any other model what suits that model, here and on this data set.
    """
    presets = _presets()
    of_dataset = presets["dataset"][dataset]
    layers = [presets["all"], presets["method"].get(method, {}), of_dataset]
    if model == "gcn":
        return [*layers, of_dataset.get(method, {})]
    of_model = presets["model"].get(model, {})
    regularised = of_model.get("regularised", {}) if method != PLAIN else {}
    own = of_model.get(method, {})
    return [*layers, of_model, regularised, own, of_dataset.get("model", {}).get(model, {})]


def _any_layers(method: str, model: str) -> list[dict[str, Any]]:
    """Return what applies to any graph; later tables win."""
    anyone = _presets()["any"]
    return [anyone, anyone["method"].get(method, {}), anyone["model"].get(model, {})]


def has_preset(dataset: str) -> bool:
    """Whether the preset file names this data set."""
    return dataset in _presets()["dataset"]


def has_model_preset(dataset: str, model: str) -> bool:
    """Whether the preset file has settings for a model on this data set."""
    return model in _presets()["dataset"].get(dataset, {}).get("model", {})


def short_name(dataset: str) -> str:
    """Return a name for folders and files: of a data set its name, of a path its last part."""
    return preset_key(dataset) or Path(dataset).resolve().stem or "graph"


def preset_key(dataset: str) -> str:
    """Return the name under which the presets know a data set; nothing for somebody's own graph."""
    name = dataset.strip().lower()
    return name if has_preset(name) else ""
