"""``bvat data``: list, fetch and check the data sets of the paper."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from bvat.data.check import Report
    from bvat.data.registry import Dataset

app = typer.Typer(help="List, fetch and check the data sets.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="cora, citeseer, pubmed or nell.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


@app.command("list")
def list_datasets(as_json: Json = False) -> None:
    """List the data sets, the counts of Table 1, and what is on this machine already."""
    from bvat.data.registry import read_registry

    rows = [
        {"name": name, "about": dataset.about, **asdict(dataset.table1), "raw_files": _whereabouts(dataset)}
        for name, dataset in read_registry().datasets.items()
    ]
    if as_json:
        typer.echo(json.dumps({"datasets": rows}))
        return
    numbers = ("nodes", "edges", "features", "classes")
    _print_table(
        ("name", *numbers, "raw files"),
        [(row["name"], *(f"{row[key]:,}" for key in numbers), row["raw_files"]) for row in rows],
        right=numbers,
    )


@app.command()
def fetch(name: Name, as_json: Json = False) -> None:
    """Get a data set and keep it in the cache, ready to train on."""
    from bvat.data.folders import cache_folder
    from bvat.data.loading import find_dataset, prepare
    from bvat.data.sources import obtain

    dataset = find_dataset(name)
    found = obtain(dataset, optional=True)
    graph = prepare(dataset, found)
    sources = sorted({hit.source for hit in found.values()})
    if as_json:
        about = {"dataset": dataset.name, "files": sorted(found), "sources": sources}
        typer.echo(json.dumps({**about, "validation": graph.validation, "cache": str(cache_folder())}))
    else:
        typer.echo(f"{graph!r} from {', '.join(sources)}; {graph.validation}")


@app.command()
def check(name: Name, as_json: Json = False) -> None:
    """Check the raw files' sha256, and the counts against Table 1; exit code 1 if anything differs."""
    from bvat.data.check import check as run_check

    report = run_check(name)
    if as_json:
        typer.echo(json.dumps(report.as_dict()))
    else:
        _print_report(report)
    if not report.ok:
        raise typer.Exit(1)


def _whereabouts(dataset: Dataset) -> str:
    """Return where the raw files of a data set are, in a word or two."""
    from bvat.data.sources import local_files, usable
    from bvat.errors import DataError

    try:
        found = local_files(dataset)
    except DataError:
        return "wrong file in BVAT_DATA"
    if not usable(dataset, found):
        return "to be fetched"
    return ", ".join(sorted({hit.source for hit in found.values()}))


def _print_report(report: Report) -> None:
    _print_table(
        ("file", "from", "sha256"),
        [(file.name, file.source, "ok" if file.ok else "WRONG") for file in report.files],
    )
    if not report.counts:
        typer.echo("nothing was counted: replace the wrong files first")
        return
    _print_table(
        ("count", "Table 1", "found", "", "note"),
        [
            (
                row.what,
                "-" if row.table1 is None else f"{row.table1:,}",
                f"{row.found:,}",
                "" if row.table1 is None else "ok" if row.ok else "DIFFERS",
                row.note,
            )
            for row in report.counts
        ],
        right=("Table 1", "found"),
    )


def _print_table(header: tuple[str, ...], rows: list[tuple[str, ...]], right: tuple[str, ...] = ()) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE)
    for title in header:
        table.add_column(title, justify="right" if title in right else "left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
