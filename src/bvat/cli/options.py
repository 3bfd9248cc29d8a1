"""Command-line options generated from the fields of the settings, so that each is described once."""

from __future__ import annotations

import functools
import inspect
import json
import tomllib
from collections.abc import Callable
from dataclasses import Field
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bvat.errors import SettingsError
from bvat.models.table import MODELS
from bvat.training.settings import all_fields, no_effect

MAX_SEED, MAX_COUNT, MAX_NODES, MAX_PROCESSES = 2**32 - 1, 10_000, 2**31 - 1, 256
"""Upper limits of seeds; of numbers of seeds, trials and splits; of nodes and epochs; of processes."""
SHOWN = ("hidden", "layers", "dropout", "lr", "weight_decay", "select", "patience", "pretrain", "alpha",
         "beta", "epsilon", "steps", "samples", "scale", "variant")  # fmt: skip
"""Settings that ``--help`` shows; all others are options too, and ``bvat settings`` lists them."""
SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        help="file with settings: JSON or TOML of bvat tune, or settings.json of a run; options win",
        metavar="FILE",
    ),
]


def with_settings(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add ``--settings FILE`` and one option per setting to a command.

    The command gets those that were given as the dict ``overrides``, and as ``changed`` these and its own
    parameters that do not have their defaults. Settings for which it has its own options become the values
    of these, unless they were given.

    Args:
        without: settings for which the command has its own options or arguments.
    """
    chosen = {name: f for name, f in all_fields().items() if name not in without}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.name not in ("overrides", "changed")]
        options = [_model_option(), *[_option(name, f) for name, f in chosen.items()]]
        file = inspect.Parameter(
            "settings_file", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=SettingsFile
        )

        @functools.wraps(command)
        def wrapper(**arguments: Any) -> None:
            source = arguments.pop("settings_file")
            given = {p.name: arguments.pop(p.name) for p in options}
            stored = {} if source is None else read_settings_file(source)
            for name in set(without) & set(stored):
                value = stored.pop(name)
                arguments[name] = value if arguments[name] is None else arguments[name]
            overrides = stored | {name: value for name, value in given.items() if value is not None}
            changed = {p.name: arguments[p.name] for p in own if arguments[p.name] != p.default}
            command(**arguments, overrides=overrides, changed=changed | overrides)

        parameters = [*own, file, *options]
        wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapper

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
    named = {name: content[name] for name in ("method", "model") if name in content}
    if isinstance(content.get("settings"), dict):
        content = content["settings"]
    elif isinstance(content.get("chosen"), dict):
        fixed = content.get("overrides", {})
        content = {**named, **(fixed if isinstance(fixed, dict) else {}), **content["chosen"]}
    for name in content:
        if name not in ("method", "model", *all_fields()):
            raise SettingsError(f"{path}: {no_effect(str(name))}")
    return dict(content)


def between(low: int, high: int) -> Callable[[int | None], int | None]:
    """Return what checks the value of an option; unlike a range of typer, it leaves the help narrow."""

    def check(value: int | None) -> int | None:
        if value is not None and not low <= value <= high:
            raise typer.BadParameter(f"use a whole number from {low:,} to {high:,}, not {value}")
        return value

    return check


SEED: dict[str, Any] = {"callback": between(0, MAX_SEED), "metavar": "N"}
COUNT: dict[str, Any] = {"callback": between(1, MAX_COUNT), "metavar": "N"}
NODES: dict[str, Any] = {"callback": between(1, MAX_NODES), "metavar": "N"}
PROCESSES: dict[str, Any] = {"callback": between(1, MAX_PROCESSES), "metavar": "N"}
"""What options of the same kind share: their range, and one letter in the help."""


def comma_separated(values: list[str] | None) -> list[str] | None:
    """Return the values of an option that may be repeated or separated by commas."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()] if values else None


def _model_option() -> inspect.Parameter:
    text = f"one of {', '.join(MODELS)}"
    option = typer.Option(
        "--model", help=text, show_default=False, rich_help_panel="Settings", metavar="NAME"
    )
    kind = Annotated[Literal[tuple(MODELS)] | None, option]  # type: ignore[valid-type]
    return inspect.Parameter("model", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def _option(name: str, f: Field[Any]) -> inspect.Parameter:
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
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[allowed | None, option]
    )
