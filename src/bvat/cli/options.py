"""Command-line options generated from the fields of the settings, so that each is described once."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import Field
from pathlib import Path
from typing import Any, Literal

from bvat.baselines.table import BASELINES
from bvat.cli.common import gathered, optional
from bvat.errors import SettingsError
from bvat.models.table import MODELS
from bvat.perturb.methods import PLAIN
from bvat.plugins import is_path
from bvat.training.settings import Settings, all_fields, no_effect
from bvat.tuning.variants import Variant

SHOWN = ("epochs", "hidden", "layers", "dropout", "lr", "weight_decay", "alpha", "beta", "epsilon", "steps")
"""Settings that ``--help`` shows; all others are options too, and ``bvat settings`` lists them."""
_PANEL = {"rich_help_panel": "Settings"}


def given_settings(method: str | None, given: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the method and the settings of a command, on top of those in the file of ``--settings``."""
    options = dict(given)
    stored = read_settings_file(options.pop("settings")) if "settings" in options else {}
    if is_path(stored.get("model")) and "model" not in options:
        raise SettingsError(
            f"the settings name the model {stored['model']}, code that bvat does not import unasked: "
            f"if you trust it, add --model {stored['model']}"
        )
    stored_method = stored.pop("method", None)
    return method or stored_method, stored | options


def read_settings_file(path: Path) -> dict[str, Any]:
    """Return the settings in a file: of ``bvat tune``, of a run folder, or names and values alone."""
    content = _content_of(path)
    whole = content.get("settings", content.get("chosen"))
    found = {**content.get("fixed", {}), **whole} if isinstance(whole, dict) else content
    for name in found:
        if name not in ("method", "model", *all_fields()):
            raise SettingsError(f"{path}: {no_effect(str(name))}")
    if found is content:
        return content
    read = Settings(**found).read()  # a run keeps all settings, also those that have no effect on it
    return {name: value for name, value in found.items() if name in read}


def _content_of(path: Path) -> dict[str, Any]:
    from bvat.data.files import read_regular

    try:
        text = read_regular(path / "settings.json" if path.is_dir() else path).decode()
        content = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path} is neither JSON nor TOML with settings: {error}") from None
    if not isinstance(content, dict):
        raise SettingsError(f"{path} does not hold settings by name")
    return content


Tuned = dict[tuple[str, str], dict[str, Any]]
"""Settings by name of graph and variant."""


def read_tuned(
    path: Path | None, graphs: Sequence[str], variants: Sequence[str]
) -> tuple[dict[str, Any], Tuned]:
    """Return settings for all variants, and those for single ones, in a file or a folder of ``bvat tune``.

    A file that names a method is for this one, on all graphs; a file of a folder is for its graph too.
    """
    if path is None:
        return {}, {}
    known = {Variant.parse(name).name for name in variants}
    if not path.is_dir() or (path / "settings.json").exists():
        found = read_settings_file(path)
        if "method" not in found and "model" not in found:
            return found, {}
        name = _variant_of(found).name
        if name not in known:
            raise SettingsError(
                f"{path} has settings of {name}, which is not among the methods: add it with --methods"
            )
        return {}, {(graph, name): found for graph in graphs}
    tuned = _results_in(path)
    used = {key: found for key, found in tuned.items() if key[0] in graphs and key[1] in known}
    if not used:
        has = ", ".join(f"{variant} on {graph}" for graph, variant in tuned) or "no result of bvat tune"
        raise SettingsError(f"{path} has nothing for these graphs and methods: it has {has}")
    return {}, used


def _results_in(folder: Path) -> Tuned:
    tuned: Tuned = {}
    for file in sorted(folder.glob("*.json")):
        content, found = _content_of(file), read_settings_file(file)
        if not {"dataset", "method", "chosen"} <= content.keys():
            raise SettingsError(f"{file} is not a result of bvat tune: remove it from the folder")
        key = (str(content["dataset"]), _variant_of(found).name)
        if key in tuned:
            raise SettingsError(
                f"{folder} has two results for {key[1]} on {key[0]}: remove one, such as {file}"
            )
        tuned[key] = found
    return tuned


def _variant_of(settings: dict[str, Any]) -> Variant:
    """Take method and model out of the settings in a file and return them."""
    model, method = settings.pop("model", "gcn"), settings.pop("method", PLAIN)
    return Variant.parse(method if method in BASELINES else f"{model}/{method}")


def _option(name: str, f: Field[Any]) -> Any:
    flag = "--" + name.replace("_", "-")
    kind: Any = type(f.default)
    names = (f"{flag}/--no-{flag[2:]}" if kind is bool else flag,)
    choices = f.metadata["choices"]
    return optional(
        Literal[choices] if choices and name != "space" else kind,
        f.metadata["help"] + (f"; one of {', '.join(choices)}" if choices else ""),
        flags=names,
        show_default=False,
        metavar="NAME" if choices else {int: "N", float: "X"}.get(kind),
        hidden=name not in SHOWN,
        **_PANEL,
    )


with_settings = gathered(
    "overrides",
    {
        "settings": optional(
            Path, "what bvat tune wrote, or settings.json of a run", flags=("--settings",), metavar="FILE"
        ),
        "model": optional(
            str, f"one of {', '.join(MODELS)}, or module:Class of your own", metavar="NAME", **_PANEL
        ),
        **{name: _option(name, f) for name, f in all_fields().items()},
    },
)
"""Adds ``--settings FILE``, ``--model`` and an option per setting, for :func:`given_settings`."""
