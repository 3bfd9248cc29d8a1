"""Variants to compare: a model and a method, written ``METHOD``, ``MODEL`` or ``MODEL/METHOD``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bvat.baselines.table import BASELINES, all_methods
from bvat.errors import SettingsError
from bvat.models.table import MODELS, find_model
from bvat.perturb.methods import METHODS, PLAIN
from bvat.plugins import is_path
from bvat.training.settings import Settings, check_read, preset_among


@dataclass(frozen=True)
class Variant:
    """A model trained by a method, with the defaults for any graph."""

    model: str
    method: str

    @classmethod
    def parse(cls, text: str) -> Variant:
        """Read ``vat`` (a method on a GCN), ``appnp`` (a plain model) or ``appnp/vat``."""
        model, separator, method = text.strip().partition("/")
        model, method = model if is_path(model) else model.lower(), method.lower()
        if not separator:
            model, method = ("gcn", model) if model in all_methods() else (model, PLAIN)
        known = model in MODELS or is_path(model)
        if not known or method not in (all_methods() if model == "gcn" else METHODS):
            raise SettingsError(
                f"there is no method {text!r}: use one of {', '.join(all_methods())}, a model "
                f"({', '.join(MODELS)}, or module:Class of your own), or MODEL/METHOD"
            )
        return cls(model, method)

    @property
    def name(self) -> str:
        if self.method == PLAIN:
            return self.model
        return self.method if self.model == "gcn" else f"{self.model}/{self.method}"

    @property
    def title(self) -> str:
        if self.method in BASELINES:
            return BASELINES[self.method].title
        if self.model == "gcn":
            return METHODS[self.method].title
        plain = find_model(self.model).title
        return plain if self.method == PLAIN else f"{plain} + {METHODS[self.method].short}"

    @property
    def short(self) -> str:
        """Its name in figures and sentences: a method on a GCN without the model."""
        on_gcn = self.model == "gcn" and self.method in METHODS
        return METHODS[self.method].short if on_gcn else self.title

    @property
    def colour(self) -> int:
        """Its place in the palette: that of the method, and for other models one of their own."""
        if self.method in BASELINES:
            return BASELINES[self.method].colour
        if self.model == "gcn":
            return METHODS[self.method].colour
        if self.method == PLAIN and self.model not in MODELS.own:
            return find_model(self.model).colour
        return (METHODS[self.method].colour + 3) % 8

    def settings(self, **overrides: Any) -> Settings:
        """Return the defaults for any graph, with those of the overrides that it reads on top."""
        return preset_among("", self.method, **{"model": self.model, **overrides})


def settings_of(names: Iterable[str], overrides: Mapping[str, Any]) -> dict[str, Settings]:
    """Return the settings of several variants; SettingsError if none of them reads one of the overrides."""
    found = {name: Variant.parse(name).settings(**overrides) for name in names}
    check_read(overrides, found.values())
    return found
