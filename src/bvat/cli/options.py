"""Command-line options generated from the fields of Settings, so that each is described once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, Literal

import typer

from bvat.training.settings import Settings

MAX_SEED, MAX_COUNT, MAX_NODES, MAX_PROCESSES = 2**32 - 1, 10_000, 2**31 - 1, 256
"""Upper limits of seeds; of numbers of seeds, trials and splits; of nodes and epochs; of processes."""


def with_settings(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add one option per setting to a command.

    The command gets those that were given as the dict ``overrides``, and as ``changed`` these and its own
    parameters that do not have their defaults.

    Args:
        without: settings for which the command has its own options or arguments.
    """
    chosen = [f for f in fields(Settings) if f.name not in without]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.name not in ("overrides", "changed")]

        @functools.wraps(command)
        def wrapper(**arguments: Any) -> None:
            given = {f.name: arguments.pop(f.name) for f in chosen}
            overrides = {name: value for name, value in given.items() if value is not None}
            changed = {p.name: arguments[p.name] for p in own if arguments[p.name] != p.default}
            command(**arguments, overrides=overrides, changed=changed | overrides)

        wrapper.__signature__ = signature.replace(parameters=own + [_option(f) for f in chosen])  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in wrapper.__signature__.parameters.values()}  # type: ignore[attr-defined]
        return wrapper

    return decorate


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


def _option(f: Any) -> inspect.Parameter:
    flag = "--" + f.name.replace("_", "-")
    kind = type(f.default)
    names = [f"{flag}/--no-{flag[2:]}"] if kind is bool else [flag]
    choices = f.metadata["choices"]
    help_text = f.metadata["help"] + (f"; one of {', '.join(choices)}" if choices else "")
    metavar = "NAME" if choices else {int: "N", float: "X"}.get(kind)
    panel = "Switches" if kind is bool else "Settings"  # apart, because two names take much room
    option = typer.Option(*names, help=help_text, show_default=False, rich_help_panel=panel, metavar=metavar)
    allowed: Any = Literal[choices] if choices else kind
    return inspect.Parameter(
        f.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[allowed | None, option]
    )
