"""Command-line options generated from the fields of the settings, so that each is described once."""

from __future__ import annotations

import functools
import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import Field
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bvat.baselines.table import BASELINES
from bvat.cli.common import gathered
from bvat.errors import SettingsError
from bvat.models.table import MODELS
from bvat.perturb.methods import PLAIN
from bvat.plugins import is_path
from bvat.training.settings import Settings, all_fields, no_effect
from bvat.tuning.variants import Variant

SHOWN = ("hidden", "layers", "dropout", "lr", "weight_decay", "alpha", "beta", "epsilon", "steps")
"""Settings that ``--help`` shows; all others are options too, and ``bvat settings`` lists them."""
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", help="what bvat tune wrote, or settings.json of a run", metavar="FILE"),
]


def with_settings(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add ``--settings FILE``, ``--model`` and one option per setting to a command.

    The command gets those that were given as the dict ``overrides``, and the method of the file as ``method``
    unless it has one. ``without`` are settings for which it has its own options or arguments.
    """
    chosen = {name: _option(name, f) for name, f in all_fields().items() if name not in without}
    text = f"one of {', '.join(MODELS)}, or module:Class of your own"
    model = Annotated[str | None, typer.Option(help=text, rich_help_panel="Settings", metavar="NAME")]
    add = gathered("overrides", {"settings": SettingsFile, "model": model, **chosen})

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_file(**arguments: Any) -> None:
            given = arguments["overrides"]
            stored = read_settings_file(given.pop("settings")) if "settings" in given else {}
            method = stored.pop("method", None)
            if is_path(stored.get("model")) and "model" not in given:
                raise SettingsError(
                    f"the settings name the model {stored['model']}, code that bvat does not import unasked: "
                    f"if you trust it, add --model {stored['model']}"
                )
            arguments["method"] = arguments["method"] or method
            arguments["overrides"] = stored | given
            command(**arguments)

        return add(with_file)

    return decorate


def read_settings_file(path: Path) -> dict[str, Any]:
    """Return the settings in a file: of ``bvat tune``, of a run folder, or names and values alone."""
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
    whole = content.get("settings", content.get("chosen"))
    found = {**content.get("fixed", {}), **whole} if isinstance(whole, dict) else content
    for name in found:
        if name not in ("method", "model", *all_fields()):
            raise SettingsError(f"{path}: {no_effect(str(name))}")
    if found is content:
        return dict(content)
    read = Settings(**found).read()  # a run keeps all settings, also those that have no effect on it
    return {name: value for name, value in found.items() if name in read}


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
        found, dataset = read_settings_file(file), _dataset_of(file)
        if (key := (dataset, _variant_of(found).name)) in tuned:
            raise SettingsError(
                f"{folder} has two results for {key[1]} on {dataset}: remove one, such as {file}"
            )
        tuned[key] = found
    return tuned


def _dataset_of(file: Path) -> str:
    content = json.loads(file.read_bytes())
    if not {"dataset", "method", "chosen"} <= content.keys():
        raise SettingsError(f"{file} is not a result of bvat tune: remove it from the folder")
    return str(content["dataset"])


def _variant_of(settings: dict[str, Any]) -> Variant:
    """Take method and model out of the settings in a file and return them."""
    model, method = settings.pop("model", "gcn"), settings.pop("method", PLAIN)
    return Variant.parse(method if method in BASELINES else f"{model}/{method}")


def _option(name: str, f: Field[Any]) -> Any:
    flag = "--" + name.replace("_", "-")
    kind: Any = type(f.default)
    names = [f"{flag}/--no-{flag[2:]}"] if kind is bool else [flag]
    choices = f.metadata["choices"]
    option = typer.Option(
        *names,
        help=f.metadata["help"] + (f"; one of {', '.join(choices)}" if choices else ""),
        show_default=False,
        rich_help_panel="Settings",
        metavar="NAME" if choices else {int: "N", float: "X"}.get(kind),
        hidden=name not in SHOWN,
    )
    allowed: Any = Literal[choices] if choices else kind
    return Annotated[allowed | None, option]
