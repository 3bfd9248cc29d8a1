"""The search space of ``bvat tune``: spans from the table of methods, and the points that it tries first."""

from __future__ import annotations

import math
from typing import Any

from bvat.errors import SettingsError
from bvat.perturb.methods import METHODS

STARTS: list[dict[str, Any]] = [
    {"alpha": 0.7, "beta": 1.2, "epsilon": 0.01, "masks": "fresh"},  # as in the authors' code
    {"alpha": 0.2, "beta": 1.0},  # then from weak to strong
    {"alpha": 0.7, "beta": 0.4},
    {"alpha": 0.7, "beta": 1.2},
    {"alpha": 0.4, "beta": 3.6},
    {"alpha": 1.2, "beta": 3.6},
]
"""The settings that every search tries first, after the preset: few random trials are mostly useless."""


def search_space(method: str) -> dict[str, Any]:
    """Return the search space of a method: a range or choices per setting, possibly with conditions."""
    known = [name for name, row in METHODS.items() if row.space]
    if method not in known:
        raise SettingsError(f"there is nothing to tune in {method!r}: use one of {', '.join(known)}")
    return dict(METHODS[method].space)


def tuned_settings(space: dict[str, Any]) -> set[str]:
    """Return the names of all settings that a search may change."""
    names = set(space) - {"when"}
    for values in space.get("when", {}).values():
        for part in values.values():
            names |= set(part)
    return names


def suggest(trial: Any, space: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """Sample all settings that apply from an Optuna trial; ``base`` has those that are not searched."""
    values = {name: _suggest(trial, name, span) for name, span in space.items() if name != "when"}
    for setting, parts in space.get("when", {}).items():
        value = values.get(setting, base[setting])
        part = parts.get(value, {})
        # one name per condition: Optuna requires the range of a name to be the same in all trials
        values |= {name: _suggest(trial, f"{name}.{value}", span) for name, span in part.items()}
    return values


def _suggest(trial: Any, name: str, span: dict[str, Any]) -> Any:
    if "choices" in span:
        return trial.suggest_categorical(name, span["choices"])
    if span.get("log"):
        return float(f"{trial.suggest_float(name, span['low'], span['high'], log=True):.2g}")
    return round(trial.suggest_float(name, span["low"], span["high"], step=span["step"]), 9)


def parameters(settings: dict[str, Any], space: dict[str, Any]) -> dict[str, Any]:
    """Return the settings as parameters of a trial, without those outside the space."""
    found = {
        name: settings[name]
        for name, span in space.items()
        if name != "when" and _contains(span, settings[name])
    }
    for setting, parts in space.get("when", {}).items():
        for name, span in parts.get(settings[setting], {}).items():
            if _contains(span, settings[name]):
                found[f"{name}.{settings[setting]}"] = settings[name]
    return found


def _contains(span: dict[str, Any], value: Any) -> bool:
    if "choices" in span:
        return value in span["choices"]
    if not span["low"] <= value <= span["high"]:
        return False
    steps = (value - span["low"]) / span["step"] if "step" in span else 0.0
    return math.isclose(steps, round(steps), abs_tol=1e-6)
