"""Command-line options generated from the fields of Settings, so that each is described once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, Literal

import typer

from bvat.cli.common import gathered
from bvat.training.settings import Settings


def with_settings(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add one option per setting to a command, which gets those that were given as the dict ``overrides``.

    Args:
        without: settings for which the command has its own options or arguments.
    """
    return gathered("overrides", {f.name: _option(f) for f in fields(Settings) if f.name not in without})


def _option(f: Any) -> Any:
    flag = "--" + f.name.replace("_", "-")
    kind = type(f.default)
    names = [f"{flag}/--no-{flag[2:]}"] if kind is bool else [flag]
    choices = f.metadata["choices"]
    help_text = f.metadata["help"] + (f"; one of {', '.join(choices)}" if choices else "")
    metavar = "NAME" if choices else {int: "N", float: "X"}.get(kind)
    panel = "Switches" if kind is bool else "Settings"  # apart, because two names take much room
    option = typer.Option(*names, help=help_text, show_default=False, rich_help_panel=panel, metavar=metavar)
    allowed: Any = Literal[choices] if choices else kind
    return Annotated[allowed | None, option]
