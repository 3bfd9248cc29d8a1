"""Options shared by all commands that read a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bvat.cli.options import MAX_NODES, NODES, SEED, between
from bvat.errors import printable

if TYPE_CHECKING:
    from bvat.graph import Graph

_PANEL = "Your graph"

Text = Annotated[
    str | None,
    typer.Option(
        help="text column of nodes.csv to turn into TF-IDF features", metavar="COLUMN", rich_help_panel=_PANEL
    ),
]
TrainPerClass = Annotated[
    int | None,
    typer.Option(
        help="training nodes per class, for experiments (default: all labelled nodes that are not held out)",
        rich_help_panel=_PANEL,
        **NODES,
    ),
]
Val = Annotated[
    int | None,
    typer.Option(
        help="labelled nodes to hold out for validation (default: none, cross-validation takes their place)",
        rich_help_panel=_PANEL,
        callback=between(0, MAX_NODES),
        metavar="N",
    ),
]
Test = Annotated[
    int | None,
    typer.Option(
        help="labelled nodes to hold out for testing (default: none)",
        rich_help_panel=_PANEL,
        callback=between(0, MAX_NODES),
        metavar="N",
    ),
]
SplitSeed = Annotated[
    int, typer.Option(help="seed of the nodes that are held out", rich_help_panel=_PANEL, **SEED)
]


def split_options(
    text: str | None, train_per_class: int | None, val: int | None, test: int | None, split_seed: int
) -> list[str]:
    """Return those options of :func:`read_graph` that differ from their defaults, for a command line."""
    given = {"--text": text, "--train-per-class": train_per_class, "--val": val, "--test": test}
    words = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    return [*words, "--split-seed", str(split_seed)] if split_seed else words


def read_graph(
    dataset: str,
    text: str | None = None,
    train_per_class: int | None = None,
    val: int | None = None,
    test: int | None = None,
    split_seed: int = 0,
) -> Graph:
    """Return the graph, and print the notes of its reader to standard error."""
    from bvat.data import load

    graph = load(
        dataset, text=text, train_per_class=train_per_class, val=val, test=test, split_seed=split_seed
    )
    for note in graph.notes:
        typer.echo(printable(f"note: {note}"), err=True)
    return graph
