"""Command-line options generated from the fields of the settings, so that each is described once."""

from __future__ import annotations

import functools
import json
import tomllib
from collections.abc import Callable
from dataclasses import Field
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bvat.cli.common import gathered
from bvat.errors import SettingsError
from bvat.models.table import MODELS
from bvat.plugins import is_path
from bvat.training.settings import Settings, all_fields, no_effect

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
