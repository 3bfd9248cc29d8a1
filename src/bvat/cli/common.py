"""What commands share: options and their ranges, tables, JSON and notes."""

from __future__ import annotations

import functools
import inspect
import json
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from bvat.errors import printable

if TYPE_CHECKING:
    from rich.console import Console

    from bvat.graph import Graph

MAX_SEED, MAX_COUNT, MAX_NODES, MAX_PROCESSES = 2**32 - 1, 10_000, 2**31 - 1, 256
"""Upper limits of seeds; of numbers of seeds, trials and splits; of nodes and epochs; of processes."""
SAME_RESULT = ("jobs", "resume", "report", "as_json", "tensorboard", "mlflow", "wandb", "rank_timeout")
"""Parameters that a page need not repeat: they change no number."""


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
HELD_OUT: dict[str, Any] = {"callback": between(0, MAX_NODES), "metavar": "N"}
PROCESSES: dict[str, Any] = {"callback": between(1, MAX_PROCESSES), "metavar": "N"}
"""What options of the same kind share: their range, and one letter in the help."""

RunArgument = Annotated[str, Argument(help="run folder that bvat train wrote", show_default=False)]
Models = Annotated[
    list[str] | None,
    Option(
        "--model",
        help="import this module:Class, with which the run was trained",
        metavar="NAME",
        hidden=True,
    ),
]
Device = Annotated[str | None, Option(help="cpu or cuda (default: a GPU if there is one)", hidden=True)]
Json = Annotated[bool, Option("--json", help="print one JSON object and nothing else")]
Calibrate = Annotated[bool, Option(help="fit the confidence to held-out labels; accuracy stays the same")]
Jobs = Annotated[int | None, Option(help="number of parallel processes (default: one per core)", **PROCESSES)]


def comma_separated(values: list[str] | None) -> list[str] | None:
    return [part.strip() for value in values for part in value.split(",") if part.strip()] if values else None


def gathered(into: str, options: Mapping[str, Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add options to a command, which gets those that were given as one dict, its parameter ``into``.

    The options are annotations by name, as typer reads them; the default of each is None.
    """
    kind = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(name, kind, default=None, annotation=each) for name, each in options.items()]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.name != into]

        @functools.wraps(command)
        def wrapper(**arguments: Any) -> None:
            found = {name: arguments.pop(name) for name in options}
            command(**arguments, **{into: {name: v for name, v in found.items() if v is not None}})

        wrapper.__signature__ = signature.replace(parameters=own + added)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in (*own, *added)}
        return wrapper

    return decorate


def optional(kind: Any, help_text: str, *, flags: Sequence[str] = (), **more: Any) -> Any:
    """Return the annotation of an option without a default."""
    return Annotated[kind | None, Option(*flags, help=help_text, **more)]


def _of_graph(kind: Any, help_text: str, **more: Any) -> Any:
    return optional(kind, help_text, rich_help_panel="Your graph", **more)


with_graph_options = gathered(
    "reading",
    {
        "text": _of_graph(
            str, "text column of the table of nodes to turn into TF-IDF features", metavar="COLUMN"
        ),
        "train_per_class": _of_graph(
            int,
            "training nodes per class, for experiments (default: all labelled nodes that are not held out)",
            **NODES,
        ),
        "val": _of_graph(
            int,
            "labelled nodes to hold out for validation (default: none, cross-validation takes their place)",
            **HELD_OUT,
        ),
        "test": _of_graph(int, "labelled nodes to hold out for testing (default: none)", **HELD_OUT),
        "split_seed": _of_graph(int, "seed of the nodes that are held out (default: 0)", **SEED),
        "directed": _of_graph(
            bool, "edges keep their direction, from source to target", flags=("--directed",)
        ),
    },
)
"""Adds the options for reading a graph to a command, which gets them as the dict ``reading``."""


def read_graph(dataset: str, reading: Mapping[str, Any]) -> Graph:
    """Return the graph, and print the notes of its reader to standard error."""
    from bvat.data import load

    graph = load(dataset, **reading)
    print_notes(graph.notes)
    return graph


def command_line(context: typer.Context, *without: str, elsewhere: bool = False) -> str:
    """Return the command that was given, for somebody to repeat; ``elsewhere`` without absolute folders."""
    words = ["bvat", str(context.info_name)]
    for parameter in context.command.params:
        name, source = str(parameter.name), context.get_parameter_source(str(parameter.name))
        if source is None or source.name != "COMMANDLINE" or name in (*SAME_RESULT, *without):
            continue
        words += _words(parameter, context.params[name], elsewhere=elsewhere)
    return shlex.join(words)


def _words(parameter: Any, value: Any, *, elsewhere: bool) -> list[str]:
    flags = [] if parameter.param_type_name == "argument" else parameter.opts[:1]
    if isinstance(value, bool):
        return list(flags if value else parameter.secondary_opts[:1])
    texts = [str(each) for each in (value if isinstance(value, list) else [value])]
    shown = [Path(text).name if elsewhere and text.startswith("/") else text for text in texts]
    return [word for text in shown for word in (*flags, text)]


def processes(jobs: int | None) -> int:
    return jobs or os.cpu_count() or 1


def messages() -> Console:
    """Return the console for progress and notes, which is standard error."""
    from rich.console import Console

    return Console(stderr=True)


def print_notes(texts: Iterable[str]) -> None:
    for text in texts:
        typer.echo(printable(f"note: {text}"), err=True)


def print_json(content: Mapping[str, Any]) -> None:
    typer.echo(json.dumps(content))


def print_table(
    title: str, header: Sequence[str], rows: Iterable[Sequence[str]], *, left: Sequence[int] = ()
) -> None:
    """Print a table in a box; the first column and those in ``left`` are left-justified, the others right."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=printable(title) or None, title_justify="left")
    for place, name in enumerate(header):
        table.add_column(printable(name), justify="left" if place == 0 or place in left else "right")
    for row in rows:
        table.add_row(*row)
    Console(markup=False).print(table)


def print_markdown(text: str) -> None:
    """Print tables and sentences in Markdown as tables in boxes and paragraphs."""
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown("\n".join(map(printable, text.splitlines()))))


def print_lines(title: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table whose last column, such as a path, may be long: lines are never broken."""
    from rich.cells import cell_len

    lines = [header, *(tuple("-" if cell is None else printable(str(cell)) for cell in row) for row in rows)]
    widths = [max(cell_len(line[k]) for line in lines) for k in range(len(header) - 1)]
    typer.echo(printable(title))
    for line in lines:
        padded = [cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=False)]
        typer.echo("  ".join([*padded, line[-1]]).rstrip())
