"""The settings of a run: of the training, of its model and of its method; and the presets.

This module imports nothing heavy: the command line reads the fields to build ``--help``.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from bvat.baselines.table import AUTO, BASELINES, all_methods
from bvat.errors import SettingsError
from bvat.models.options import Options
from bvat.models.table import MODELS, Model, find_model
from bvat.perturb.methods import METHODS, PLAIN, SEVERAL
from bvat.plugins import is_path, path_of, source_of
from bvat.training.options import Training

OWN = "own"
"""What the presets call every model that is not bvat's."""


@dataclass(frozen=True, init=False)
class Settings:
    """The settings of a run: how it is trained, and the settings that its model and its method have.

    All of them are attributes, keywords, options of ``bvat train`` and keys of the preset file, whichever
    part they belong to; ``bvat settings`` lists them.

    Args:
        method: a name of :data:`bvat.perturb.methods.METHODS` or of a baseline.
        model: a name of :data:`bvat.models.table.MODELS`; or one of your own, see
            :func:`bvat.models.own.build`: a module, what makes one, or ``"module:name"`` to import it from.
        training, of_model, of_method: the three parts; None for their defaults.
        own: the model itself, if ``model`` is its name.
        values: settings of any part, which replace those of the parts.

    Raises:
        SettingsError: a value is out of its range, or is none of this model and method.

    Example:
        >>> settings = bvat.Settings("vat", "gat", epochs=20, heads=4, epsilon=0.1)
        >>> settings.heads, settings.of_method.epsilon, settings.training.epochs
        (4, 0.1, 20)
    """

    method: str
    model: str
    training: Training
    of_model: Options
    of_method: Options
    own: Any = field(default=None, compare=False, repr=False)
    """The model, if it was not given by name."""

    def __init__(
        self,
        method: str = "obvat",
        model: Any = "gcn",
        training: Training | None = None,
        of_model: Options | None = None,
        of_method: Options | None = None,
        own: Any = None,
        **values: Any,
    ) -> None:
        if not isinstance(model, str):
            own, model = model, path_of(model)
        elif own is not None and path_of(own) != model:  # dataclasses.replace with another model
            own = None
        parts = (
            ("training", Training, training),
            ("of_model", _model_row(model, own).options, of_model),
            ("of_method", method_options(method), of_method),
        )
        self.__dict__.update(method=method, model=model, own=own)  # it is frozen
        for part, kind, given in parts:
            found = {} if given is None else given.as_dict()
            found |= {f.name: values.pop(f.name) for f in fields(kind) if f.name in values}
            self.__dict__[part] = kind(**found)
        for unknown in values:
            raise SettingsError(no_effect(unknown, self))
        if method in BASELINES and model != "gcn":
            raise SettingsError(
                f"{method} is a classifier of its own: use it without --model {model}, or choose what trains "
                "that model, such as --method none"
            )

    def __getattr__(self, name: str) -> Any:
        for part in ("training", "of_model", "of_method"):
            found = self.__dict__.get(part)
            if name in getattr(found, "__dataclass_fields__", {}):
                return getattr(found, name)
        raise AttributeError(f"{type(self).__name__} has no {name!r} here: see bvat settings")

    def replace(self, **changes: Any) -> Settings:
        """Return the settings with some changed; another model or method starts from its own defaults."""
        kept = {"method": self.method, "model": self.given_model, "training": self.training}
        if changes.get("model", self.given_model) in (self.model, self.given_model):
            kept["of_model"] = self.of_model
        if changes.get("method", self.method) == self.method:
            kept["of_method"] = self.of_method
        return Settings(**kept | changes)

    @property
    def given_model(self) -> Any:
        """The model as it was given: its name, or itself."""
        return self.model if self.own is None else self.own

    @property
    def model_row(self) -> Model:
        return find_model(self.model, self.own)

    def read(self) -> set[str]:
        """Return the names of the settings that have an effect on this method and model."""
        own = {"method", "model"} | self.of_method.read()
        return own if self.method in BASELINES else own | self.training.read() | self.of_model.read()

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as plain values; ``Settings(**them)`` are the same."""
        options = self.training.as_dict() | self.of_model.as_dict() | self.of_method.as_dict()
        return {"method": self.method, "model": self.model, **options}

    def identity(self) -> dict[str, Any]:
        """Return :meth:`as_dict`, and a digest of the code of a model or method that is not bvat's."""
        return self.as_dict() | self._code(METHODS[self.method].home if self.method in METHODS else "")

    def first_phase(self) -> dict[str, Any]:
        """Return what the first of two phases depends on: methods that agree in it share that phase."""
        options = self.training.as_dict() | self.of_model.as_dict()
        return {"model": self.model, **options, **self._code()}

    def _code(self, *homes: Any) -> dict[str, str]:
        found = homes if self.model_row.is_own else (*homes, self.model_row.load())
        texts = [text for home in found if home and (text := source_of(home))]
        return {"code": hashlib.sha256("".join(texts).encode()).hexdigest()} if texts else {}


def _model_row(model: str, own: Any = None) -> Model:
    if model not in MODELS and own is None and not is_path(model):
        known = ", ".join(MODELS)
        raise SettingsError(f"model must be one of {known}, or module:Class of your own, not {model!r}")
    return find_model(model, own)


def method_options(method: str) -> type[Options]:
    if method in BASELINES:
        return BASELINES[method].options
    if method in METHODS:
        return METHODS[method].options
    if method in MODELS:
        raise SettingsError(f"{method} is a model, not a method: use --model {method} --method {PLAIN}")
    raise SettingsError(f"there is no method {method!r}: use one of {', '.join(all_methods())}")


def all_fields() -> dict[str, Field[Any]]:
    """Return every setting of every model and method by name; where they differ, the first one's field."""
    rows: list[Any] = [*MODELS.values(), *METHODS.values(), *BASELINES.values()]
    found: dict[str, Field[Any]] = {}
    for kind in (Training, *(row.options for row in rows)):
        for f in fields(kind):
            found.setdefault(f.name, f)
    return found


def owners() -> dict[str, tuple[str, ...]]:
    """Return who has each setting that not all training has."""
    found: dict[str, list[str]] = {}
    rows: list[Any] = [*MODELS.values(), *METHODS.values(), *BASELINES.values()]
    for row in rows:
        for f in fields(row.options):
            only = f.metadata.get("only")
            if only != SEVERAL:
                whose = row.name if only is None else f"{row.name} with {only[0]} {only[1]}"
                found.setdefault(f.name, []).append(whose)
    return {name: tuple(names) for name, names in found.items()}


def no_effect(name: str, *among: Settings) -> str:
    """Return that none of these has a setting, and who has."""
    if name not in all_fields():
        return f"there is no setting {name!r}: bvat settings lists them"
    methods = ", ".join(dict.fromkeys(settings.method for settings in among))
    models = ", ".join(dict.fromkeys(settings.model for settings in among))
    known = owners().get(name)
    if known is None or (
        all(settings.method in BASELINES for settings in among) and known[0] not in BASELINES
    ):
        why = "whose networks have their own" if methods == AUTO else "which trains no network"
        return f"{name} has no effect with {methods}, {why}: leave it out"
    whose = models if known[0] in MODELS else methods
    return f"{name} has no effect with {whose}: leave it out, it belongs to {', '.join(known)}"


def check_read(overrides: Mapping[str, Any], methods: Iterable[Settings]) -> None:
    among = list(methods)
    for name in overrides:
        if among and not any(name in settings.read() for settings in among):
            raise SettingsError(no_effect(name, *among))


def preset(dataset: str, method: str, **overrides: Any) -> Settings:
    """Return the settings for a data set and a method, with ``overrides`` on top.

    The data sets of the paper have presets of their own, searched on their validation labels and meant to
    reproduce the paper. Every other graph, also ``""``, gets defaults that do not depend on its name:
    features scaled to unit length, a plain phase that the regularised one has to beat, and early stopping.

    Raises:
        SettingsError: an override is wrong, or has no effect on the method and the model.
    """
    settings = _merged(dataset, method, overrides)
    check_read(overrides, [settings])
    return settings


def preset_among(dataset: str, method: str, **overrides: Any) -> Settings:
    """Return the same for one of several methods: overrides that only others read are left out."""
    for name in sorted(overrides.keys() - {*all_fields(), "model"}):
        raise SettingsError(no_effect(name))
    switches = {f.metadata["only"][0] for f in all_fields().values() if f.metadata.get("only")}
    switches &= {f.name for f in fields(method_options(method))}
    deciding = {name: value for name, value in overrides.items() if name in switches | {"model"}}
    read = _merged(dataset, method, deciding).read()
    return preset(dataset, method, **{name: value for name, value in overrides.items() if name in read})


def labels_only(settings: Settings) -> dict[str, Any]:
    """Return what changes where no validation node says when to stop; values other than the usual stay."""
    usual, read = preset("", settings.method, model=settings.model), settings.read()
    own = _presets()["labels-only"]["model"].get(settings.model, {})
    return {n: v for n, v in own.items() if n in read and getattr(settings, n) == getattr(usual, n)}


def _merged(dataset: str, method: str, overrides: Mapping[str, Any]) -> Settings:
    model = overrides.get("model", "gcn")
    row = _model_row(model) if isinstance(model, str) else find_model(path_of(model), model)
    kinds = Training, row.options, method_options(method)
    defaults = {f.name: f.default for kind in kinds for f in fields(kind)}
    values = {"method": method, "model": model}
    known = row.name if row.is_own else OWN
    for layer in _layers(dataset, method, known):  # they also name what other methods have
        values |= {name: value for name, value in layer.items() if name in defaults}
    values |= overrides
    if "epochs" in overrides and "pretrain" not in overrides and values.get("pretrain"):
        weights = {**defaults, **values}
        plain = not weights.get("alpha") and not weights.get("beta")  # one phase, of all these epochs
        values["pretrain"] = 0 if plain else min(values["pretrain"], max(0, overrides["epochs"] * 3 // 4))
    return Settings(**values)


@cache
def _presets() -> dict[str, Any]:
    return tomllib.loads(resources.files("bvat.training").joinpath("presets.toml").read_text("utf-8"))


def _layers(dataset: str, method: str, model: str) -> list[dict[str, Any]]:
    """Return the tables of the preset file that apply; later ones win.

    For a data set of the paper: those shared by all methods, the method's, the data set's; then for a GCN
    that of data set and method, which was searched with a GCN, and for any other model what suits it.
    """
    presets = _presets()
    if method in BASELINES:  # they choose what they need themselves
        return [presets["baseline"]]
    if not has_preset(dataset) or model == OWN or method not in METHODS.own:
        anyone = presets["any"]
        return [anyone, anyone["model"].get(model, {})]
    of_dataset = presets["dataset"][dataset]
    layers = [presets["all"], presets["method"].get(method, {}), of_dataset]
    if model == "gcn":
        return [*layers, of_dataset.get(method, {})]
    of_model = presets["model"].get(model, {})
    regularised = of_model.get("regularised", {}) if method != PLAIN else {}
    own = of_model.get(method, {})
    return [*layers, of_model, regularised, own, of_dataset.get("model", {}).get(model, {})]


def has_preset(dataset: str) -> bool:
    return dataset in _presets()["dataset"]


def has_model_preset(dataset: str, model: str) -> bool:
    return model in _presets()["dataset"].get(dataset, {}).get("model", {})


def preset_key(dataset: str) -> str:
    """Return the name under which the presets know a data set; nothing for somebody's own graph."""
    name = dataset.strip().lower()
    return name if has_preset(name) else ""


def short_name(dataset: str) -> str:
    """Return a name for folders and files: of a data set its name, of a path its last part."""
    return preset_key(dataset) or Path(dataset).resolve().stem or "graph"
