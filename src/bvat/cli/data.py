"""``bvat data``: list, fetch and check the named data sets."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument

from bvat.cli.common import Json, print_json, print_table

if TYPE_CHECKING:
    from bvat.data.sources import Dataset

app = typer.Typer(help="List, fetch and check the data sets.", no_args_is_help=True)

Name = Annotated[str, Argument(help="Name of a data set, as shown by bvat data list.", show_default=False)]


@app.command("list")
def list_datasets(as_json: Json = False) -> None:
    """List the data sets, their sizes in Table 1 of the paper, and where their files are."""
    from bvat.data.loading import DATASETS
    from bvat.data.sources import read_registry

    rows: list[dict[str, Any]] = [
        {"name": name, "about": dataset.about, **dataset.table1, "raw_files": _whereabouts(dataset)}
        for name, dataset in read_registry().datasets.items()
    ]
    rows += [{"name": row.name, "about": row.about, "raw_files": "plug-in"} for row in DATASETS.values()]
    if as_json:
        print_json({"datasets": rows})
        return
    numbers = ("nodes", "edges", "features", "classes")
    cells = [
        (row["name"], *(f"{row[key]:,}" if key in row else "-" for key in numbers), row["raw_files"])
        for row in rows
    ]
    print_table("", ("name", *numbers, "raw files"), cells, left=(5,))


@app.command()
def fetch(name: Name, as_json: Json = False) -> None:
    """Download the files of a data set to the cache, and read them."""
    from bvat.data.loading import build_graph, find_dataset
    from bvat.data.sources import cache_folder, obtain

    dataset = find_dataset(name)
    found = obtain(dataset)
    graph = build_graph(dataset, found)
    sources = sorted({hit.source for hit in found.values()})
    if as_json:
        about = {"dataset": dataset.name, "files": sorted(found), "sources": sources}
        print_json({**about, "validation": graph.validation, "cache": str(cache_folder())})
    else:
        typer.echo(f"{graph!r} from {', '.join(sources)}; {graph.validation}")


@app.command()
def check(
    name: Annotated[
        str, Argument(help="Name of a data set, or path of a run folder or file.", show_default=False)
    ],
    as_json: Json = False,
) -> None:
    """Verify checksums; exit code 1 on a difference.

    For a data set, the raw files are compared with their sha256. For a path, such as a run folder, every file
    is compared with the checksum that bvat wrote with it.
    """
    from bvat.data.checksums import check_files
    from bvat.data.loading import check_dataset, names

    is_path = name.strip().lower() not in names() and Path(name).exists()
    found = check_files(Path(name)) if is_path else check_dataset(name)
    ok = all(file.ok is not False for file in found)
    if as_json:
        print_json({"ok": ok, "path": name, "files": [asdict(file) for file in found]})
    else:
        words = {True: "ok", False: "WRONG", None: "none"}
        print_table("", ("file", "sha256"), [(file.name, words[file.ok]) for file in found], left=(1,))
    if not ok:
        raise typer.Exit(1)


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
