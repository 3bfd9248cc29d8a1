"""``bvat data``: list, fetch and check the named data sets."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bvat.cli.common import Json, print_json, print_table

if TYPE_CHECKING:
    from bvat.data.loading import DatasetCheck
    from bvat.data.registry import Dataset

app = typer.Typer(help="List, fetch and check the data sets.", no_args_is_help=True)

Name = Annotated[
    str, typer.Argument(help="Name of a data set, as shown by bvat data list.", show_default=False)
]


@app.command("list")
def list_datasets(as_json: Json = False) -> None:
    """List the data sets, their sizes in Table 1 of the paper, and where their files are."""
    from bvat.data.registry import read_registry

    rows: list[dict[str, Any]] = [
        {"name": name, "about": dataset.about, **dataset.table1, "raw_files": _whereabouts(dataset)}
        for name, dataset in read_registry().datasets.items()
    ]
    if as_json:
        print_json({"datasets": rows})
        return
    numbers = ("nodes", "edges", "features", "classes")
    print_table(
        "",
        ("name", *numbers, "raw files"),
        [(row["name"], *(f"{row[key]:,}" for key in numbers), row["raw_files"]) for row in rows],
        left=(5,),
    )


@app.command()
def fetch(name: Name, as_json: Json = False) -> None:
    """Download a data set and cache it, ready for training."""
    from bvat.data.loading import find_dataset, prepare
    from bvat.data.sources import cache_folder, obtain

    dataset = find_dataset(name)
    found = obtain(dataset, optional=True)
    graph = prepare(dataset, found)
    sources = sorted({hit.source for hit in found.values()})
    if as_json:
        about = {"dataset": dataset.name, "files": sorted(found), "sources": sources}
        print_json({**about, "validation": graph.validation, "cache": str(cache_folder())})
    else:
        typer.echo(f"{graph!r} from {', '.join(sources)}; {graph.validation}")


@app.command()
def check(
    name: Annotated[
        str, typer.Argument(help="Name of a data set, or path of a run folder or file.", show_default=False)
    ],
    as_json: Json = False,
) -> None:
    """Verify checksums; exit code 1 on a difference.

    For a data set, the raw files are compared with their sha256, the cached graph with the raw files, and the
    counts with Table 1. For a path, such as a run folder, every file is compared with the checksum that bvat
    wrote with it.
    """
    from bvat.data.loading import check_dataset, names

    if name.strip().lower() not in names() and Path(name).exists():
        ok = _check_path(Path(name), as_json=as_json)
    else:
        result = check_dataset(name)
        ok = result.ok
        if as_json:
            print_json(result.as_dict())
        else:
            _print_check(result)
    if not ok:
        raise typer.Exit(1)


def _check_path(path: Path, *, as_json: bool) -> bool:
    from bvat.data.checksums import check_files

    found = check_files(path)
    ok = all(file.ok is not False for file in found)
    if as_json:
        print_json({"ok": ok, "path": str(path), "files": [asdict(file) for file in found]})
    else:
        words = {True: "ok", False: "WRONG", None: "none"}
        print_table("", ("file", "sha256"), [(file.name, words[file.ok]) for file in found], left=(1,))
    return ok


def _whereabouts(dataset: Dataset) -> str:
    from bvat.data.sources import local_files, usable
    from bvat.errors import DataError

    try:
        found = local_files(dataset)
    except DataError:
        return "wrong file in BVAT_DATA"
    if not usable(dataset, found):
        return "not fetched"
    return ", ".join(sorted({hit.source for hit in found.values()}))


def _print_check(result: DatasetCheck) -> None:
    print_table(
        "",
        ("file", "from", "sha256"),
        [(file.name, file.source, "ok" if file.ok else "WRONG") for file in result.files],
        left=(1, 2),
    )
    if not result.counts:
        typer.echo("the graph was not built: replace the wrong files first")
        return
    print_table(
        "",
        ("count", "Table 1", "found", "", "note"),
        [
            (
                row.what,
                "-" if row.table1 is None else f"{row.table1:,}",
                f"{row.found:,}",
                "" if row.table1 is None else "ok" if row.ok else "DIFFERS",
                row.note,
            )
            for row in result.counts
        ],
        left=(3, 4),
    )
