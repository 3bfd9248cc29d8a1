"""``bvat review``, ``bvat suggest`` and ``bvat explain``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from bvat.cli.common import COUNT, SEED, Json, Models, RunArgument, command_line, print_json, print_lines
from bvat.errors import SettingsError, printable

Out = Annotated[Path | None, Option(help="CSV file to write", show_default=False)]
Number = Annotated[int, Option(help="number of nodes", metavar="N")]
SHOWN = 20
"""Rows that are printed; a file has all."""


def review(run: RunArgument, out: Out = None, model: Models = None, as_json: Json = False) -> None:
    """List the labels of a run, those first that look wrong.

    The score compares the given class with the likeliest other one, by models
    that had not seen the label: below 0.2, where the other is four times as
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

    from bvat.inference.runs import open_run
    from bvat.inference.tables import check_writable
    from bvat.trust.suggest import suggest as suggested

    check_writable(out)
    opened = open_run(run, model or ())
    graph = opened.graph()
    labelled = torch.nonzero(graph.labelled)[:, 0]
    found = suggested(graph, opened.classifier(graph).probabilities(graph), labelled, count)
    _show(f"nodes of {graph.name} to label next", found.columns(graph), out, as_json)


def _show(title: str, columns: Mapping[str, list[Any]], out: Path | None, as_json: bool) -> None:
    from bvat.data.files import csv_text
    from bvat.inference.tables import short_number, write_text

    rows = list(zip(*columns.values(), strict=True))
    texts = [[short_number(cell) if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    rest = f"{len(rows) - SHOWN} more: write them to a file with --out" if len(rows) > SHOWN else ""
    if out is not None:
        write_text(out, csv_text(tuple(columns), texts))
        rest = f"{out}: {len(rows)} rows"
    if as_json:
        print_json({"rows": [dict(zip(columns, row, strict=True)) for row in rows], "out": out and str(out)})
        return
    print_lines(title, list(columns), texts[:SHOWN])
    if rest:
        typer.echo(printable(rest))


def explain(
    context: typer.Context,
    run: RunArgument,
    node: Annotated[str, Option(help="id of the node", metavar="ID", show_default=False)],
    seed: Annotated[
        int | None, Option(help="seed of the model to explain (default: the run's first)", **SEED)
    ] = None,
    top: Annotated[int, Option(help="neighbours and features to list", **COUNT)] = 10,
    out: Annotated[Path | None, Option(help="page (.html) or table (.csv) to write")] = None,
    model: Models = None,
    as_json: Json = False,
) -> None:
    """Say why a node got its class: the neighbours and features that carried the decision.

    A share is what a neighbour or feature adds to the lead of the predicted class
    over the next one; negative shares speak for the next one. The smallest change
    of the features that changes the class is that of bvat audit. The page has
    a picture of the neighbourhood; the table lists all contributions.

    Examples:

      bvat explain runs/papers --node p17

      bvat explain runs/papers --node p17 --out why.html
    """
    from bvat.inference.runs import open_run
    from bvat.inference.tables import check_writable, write_text
    from bvat.trust.explain import explain as explained

    check_writable(out)
    if out is not None and out.suffix not in (".html", ".csv"):
        raise SettingsError(f"{out} is neither a page nor a table: end its name in .html or .csv")
    trained = open_run(run, model or ())
    graph, seed = trained.graph(), trained.seeds[0] if seed is None else seed
    found = explained(trained.classifier(graph, seed), graph, node)
    if out is not None and out.suffix == ".csv":
        write_text(out, found.csv())
    elif out is not None:
        from bvat.report.explain_page import explain_page

        write_text(out, explain_page(graph, found, trained.name, top, command_line(context)))
    if as_json:
        print_json({"run": trained.name, "seed": seed, "out": out and str(out), **found.as_dict(top)})
        return
    _show_explanation(found, top)
    if out is not None:
        typer.echo(f"{out}")


def _show_explanation(found: Any, top: int) -> None:
    p, shown = found.probabilities, found.as_dict(top)
    for name, value in (
        (found.id, f"{found.predicted}, probability {p[found.predicted]:.3f}"),
        ("next class", f"{found.next}, probability {p[found.next]:.3f}"),
        ("label", found.label or "unknown"),
        ("smallest change of class", found.change_text()),
    ):
        typer.echo(printable(f"{name}: {value}"))
    neighbours = [
        (_percent(row), row["hops"] if row["hops"] >= 0 else None, row["predicted"], row["label"] or None,
         row["id"])
        for row in shown["neighbours"]
    ]  # fmt: skip
    features = [(_percent(row), f"{row['value']:.3g}", row["feature"]) for row in shown["features"]]
    for name, count, header, rows in (
        ("neighbours", found.node_columns["node"].size, ("hops", "predicted", "label", "node"), neighbours),
        ("features", found.feature_columns["feature"].size, ("own value", "feature"), features),
    ):
        typer.echo()
        print_lines(f"{name}, {len(rows)} of {count:,} that contributed", ("share", *header), rows)


def _percent(row: Mapping[str, Any]) -> str:
    return f"{100 * row['share']:+.1f} %"
