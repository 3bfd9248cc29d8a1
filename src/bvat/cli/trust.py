"""``bvat review`` and ``bvat suggest``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from bvat.cli.common import Json, Models, RunArgument, print_json, print_lines
from bvat.errors import printable

Out = Annotated[Path | None, typer.Option(help="CSV file to write", show_default=False)]
Number = Annotated[int, typer.Option(help="number of nodes", metavar="N")]
SHOWN = 20
"""Rows that are printed; a file has all."""


def review(run: RunArgument, out: Out = None, model: Models = None, as_json: Json = False) -> None:
    """List the labels of a run, those first that look wrong.

    The score compares the given class with the likeliest other one, by models
    that had not seen the label: below 0.1, where the other is nine times as
    likely, the label is suspect. The last column has the classes of the
    neighbours, predicted ones where there is no label.

    Examples:

      bvat review runs/papers-auto

      bvat review runs/papers-auto --out labels.csv
    """
    from bvat.inference.runs import open_run
    from bvat.inference.tables import check_writable
    from bvat.trust.held_out import held_out
    from bvat.trust.review import review as reviewed

    if out is not None:
        check_writable(out)
    opened = open_run(run, model or ())
    found = reviewed(held_out(opened))
    title = f"{int(found.suspect.sum())} of {found.nodes.size} labels of {opened.name} are suspect"
    graph = opened.graph()
    columns = found.columns(graph, opened.classifier(graph).probabilities(graph))
    _show(title, columns, out, as_json)


def suggest(
    run: RunArgument, count: Number = 20, out: Out = None, model: Models = None, as_json: Json = False
) -> None:
    """List the nodes of a run that are worth a label, the most useful first, and why.

    Nodes that are far from all labels and stand for many others come first;
    later, those whose class is undecided.

    Examples:

      bvat suggest runs/papers-auto --count 50 --out next.csv
    """
    import torch

    from bvat.graph import UNKNOWN
    from bvat.inference.runs import open_run
    from bvat.inference.tables import check_writable
    from bvat.trust.suggest import suggest as suggested

    if out is not None:
        check_writable(out)
    opened = open_run(run, model or ())
    graph = opened.graph()
    labelled = torch.nonzero(graph.labels != UNKNOWN)[:, 0]
    found = suggested(graph, opened.classifier(graph).probabilities(graph), labelled, count)
    _show(f"nodes of {graph.name} to label next", found.columns(graph), out, as_json)


def _show(title: str, columns: Mapping[str, list[Any]], out: Path | None, as_json: bool) -> None:
    from bvat.data.files import csv_text
    from bvat.inference.tables import short_number, write_text

    rows = list(zip(*columns.values(), strict=True))
    texts = [[short_number(cell) if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    if out is not None:
        write_text(out, csv_text(tuple(columns), texts))
    if as_json:
        print_json({"rows": [dict(zip(columns, row, strict=True)) for row in rows], "out": out and str(out)})
        return
    print_lines(title, list(columns), [[printable(cell) for cell in row] for row in texts[:SHOWN]])
    if out is not None:
        typer.echo(f"{out}: {len(rows)} rows")
    elif len(rows) > SHOWN:
        typer.echo(f"{len(rows) - SHOWN} more: write them to a file with --out")
