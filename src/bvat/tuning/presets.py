"""What ``bvat tune`` searches, and presets written from its results.

python -m bvat.tuning.presets results/tune            # print the new preset file
python -m bvat.tuning.presets results/tune --write    # write it into the package
"""

from __future__ import annotations

import json
import math
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bvat.data.checksums import read_sealed_json
from bvat.data.files import write_atomic
from bvat.errors import SettingsError
from bvat.perturb.methods import METHODS
from bvat.training import settings as training_settings

PRESETS = Path(training_settings.__file__).with_name("presets.toml")

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


def read_tuning_results(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the chosen settings of all results in a folder, by data set and method."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            result = read_sealed_json(path)
            found[result["dataset"], result["method"]] = dict(result["chosen"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SettingsError(f"{path} is not a result of bvat tune ({error}): move it elsewhere") from None
    if not found:
        raise SettingsError(f"there is no result of bvat tune in {folder}: give the folder of --out")
    return found


def with_results(text: str, results: dict[tuple[str, str], dict[str, Any]]) -> str:
    """Return a preset file with one table ``[dataset.D.M]`` per result; other tables and comments stay.

    A result updates an existing table, which keeps the settings that the search did not choose: those that
    were fixed, and those that apply to another search only. A new table follows the last one of its data set.
    """
    blocks = re.split(r"(?m)^(?=\[)", text)
    for (dataset, method), chosen in results.items():
        heads = [block[1:].partition("]")[0] if block.startswith("[") else "" for block in blocks]
        head = f"dataset.{dataset}.{method}"
        before = tomllib.loads(text).get("dataset", {}).get(dataset, {}).get(method, {})
        block = f"[{head}]\n{toml_lines({**before, **chosen})}\n"
        if head in heads:
            at = heads.index(head)
            comment = re.search(r"(?m)(?:^#[^\n]*\n)+\s*\Z", blocks[at])  # belongs to the next table
            blocks[at] = block + (comment[0] if comment else "")
        else:
            family = [i for i, h in enumerate(heads, 1) if f"{h}.".startswith(f"dataset.{dataset}.")]
            blocks.insert(max(family, default=len(blocks)), block)
    return "\n\n".join(filter(None, map(str.strip, blocks))) + "\n"


def toml_lines(values: Mapping[str, Any]) -> str:
    """Return settings (texts, numbers and switches) as lines of TOML."""
    return "".join(
        f"{name} = {repr(value) if type(value) is float else json.dumps(value, ensure_ascii=False)}\n"
        for name, value in values.items()
    )


def main(arguments: list[str]) -> None:
    """Print or write the preset file."""
    folders = [argument for argument in arguments if argument != "--write"]
    if len(folders) != 1:
        raise SystemExit("usage: python -m bvat.tuning.presets FOLDER [--write]")
    text = with_results(PRESETS.read_text("utf-8"), read_tuning_results(Path(folders[0])))
    if "--write" in arguments:
        write_atomic(PRESETS, text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
