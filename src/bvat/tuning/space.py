"""What ``bvat tune`` searches, as parameters of Optuna."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from bvat.errors import SettingsError
from bvat.models.table import find_model
from bvat.perturb.methods import METHODS, PLAIN
from bvat.training.options import Training

STARTS: list[dict[str, Any]] = [
    {"alpha": 0.7, "beta": 1.2, "epsilon": 0.01, "masks": "fresh"},  # as in the authors' code
    {"alpha": 0.2, "beta": 1.0},  # then from weak to strong
    {"alpha": 0.7, "beta": 0.4},
    {"alpha": 0.7, "beta": 1.2},
    {"alpha": 0.4, "beta": 3.6},
    {"alpha": 1.2, "beta": 3.6},
]
"""The settings that every search tries first, after the preset: few random trials are mostly useless."""


MODEL_SPACE: dict[str, Any] = {
    "lr": {"low": 0.001, "high": 0.05, "log": True},
    "weight_decay": {"low": 1e-5, "high": 1e-2, "log": True},
    "dropout": {"low": 0.0, "high": 0.8, "step": 0.1},
    "hidden": {"choices": [8, 16, 32, 64, 128]},
}
"""What is searched of a plain model, as far as it has these settings."""


def search_space(method: str, model: str = "gcn") -> dict[str, Any]:
    """Return the search space: a range or choices per setting, possibly with conditions.

    It is that of the method, and of the model if that is trained without a regulariser.
    """
    if method == PLAIN:
        own = {f.name for kind in (Training, find_model(model).options) for f in fields(kind)}
        return {name: span for name, span in MODEL_SPACE.items() if name in own}
    if method not in METHODS or not METHODS[method].space:
        known = [PLAIN, *(name for name, row in METHODS.items() if row.space)]
        raise SettingsError(f"there is nothing to tune in {method!r}: use one of {', '.join(known)}")
    return dict(METHODS[method].space)


def tuned_settings(space: dict[str, Any]) -> set[str]:
    branches = [part for parts in space.get("when", {}).values() for part in parts.values()]
    return {name for part in (space, *branches) for name in part if name != "when"}


def applying(space: dict[str, Any], settings: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield each setting that is searched beside the given ones, its parameter in Optuna, and its span."""
    yield from ((name, name, span) for name, span in space.items() if name != "when")
    for switch, parts in space.get("when", {}).items():
        value = settings[switch]
        # one name per condition: Optuna requires the range of a name to be the same in all trials
        yield from ((name, f"{name}.{value}", span) for name, span in parts.get(value, {}).items())


def suggest(trial: Any, space: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """Sample all settings that apply from an Optuna trial; ``base`` has those that are not searched."""
    values: dict[str, Any] = {}
    settings = dict(base)  # read while it changes: conditions come last
    for name, parameter, span in applying(space, settings):
        values[name] = settings[name] = _suggest(trial, parameter, span)
    return values


def _suggest(trial: Any, name: str, span: dict[str, Any]) -> Any:
    if "choices" in span:
        return trial.suggest_categorical(name, span["choices"])
    if span.get("log"):
        return float(f"{trial.suggest_float(name, span['low'], span['high'], log=True):.2g}")
    return round(trial.suggest_float(name, span["low"], span["high"], step=span["step"]), 9)


def parameters(settings: dict[str, Any], space: dict[str, Any]) -> dict[str, Any]:
    """Return the settings as parameters of a trial, without those outside the space."""
    spans = applying(space, settings)
    return {key: settings[name] for name, key, span in spans if _contains(span, settings[name])}


def _contains(span: dict[str, Any], value: Any) -> bool:
    if "choices" in span:
        return value in span["choices"]
    if not span["low"] <= value <= span["high"]:
        return False
    steps = (value - span["low"]) / span["step"] if "step" in span else 0.0
    return math.isclose(steps, round(steps), abs_tol=1e-6)


def toml_lines(values: Mapping[str, Any]) -> str:
    """Return settings (texts, numbers and switches) as lines of TOML."""
    return "".join(
        f"{name} = {repr(value) if type(value) is float else json.dumps(value, ensure_ascii=False)}\n"
        for name, value in values.items()
    )
