"""``bvat reproduce``."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from bvat.baselines.table import ALL_METHODS
from bvat.cli.options import NODES, PROCESSES, comma_separated
from bvat.errors import printable


def reproduce(
    what: Annotated[str, typer.Argument(help="table2, fig1a, fig1b, fig1c, fig3, fig4, time or all")],
    seeds: Annotated[
        str,
        typer.Option(
            help="number of seeds; 20,nell=10,nell:gat=5 has others for a data set and for a row of it; "
            "cheap stands for the cells of Table 2 that take seconds a run (GCN and MoNet; Cora and Citeseer)"
        ),
    ] = "10,cheap=20",
    datasets: Annotated[
        list[str] | None,
        typer.Option(
            help="names or paths, separated by commas or with the option repeated (default: the paper's)"
        ),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(help=f"{', '.join(ALL_METHODS)}, a model, or MODEL/METHOD (default: all)"),
    ] = None,
    add: Annotated[
        bool, typer.Option("--add", help="keep the rows of Table 2 in --out that are not made anew")
    ] = False,
    epochs: Annotated[
        int | None, typer.Option(help="number of epochs (default: the presets')", **NODES)
    ] = None,
    out: Annotated[Path, typer.Option(help="folder for the results")] = Path("results/paper"),
    jobs: Annotated[
        int | None, typer.Option(help="number of parallel processes (default: one per core)", **PROCESSES)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")] = False,
) -> None:
    """Reproduce tables and figures of the paper and compare them with the published numbers.

    The result of every run is stored: after an interruption, the same command does only the missing runs.

    Examples:

      bvat reproduce table2 --datasets cora --seeds 2

      bvat reproduce all --seeds 20,nell=10 --out results/paper
    """
    from rich.console import Console

    from bvat.cli.pages import keep_results
    from bvat.paper.request import Request, parse_seeds
    from bvat.paper.targets import TARGETS
    from bvat.paper.targets import reproduce as run_reproduction
    from bvat.report.paper_page import PAGE, write_paper_files

    chosen_datasets, chosen_methods = comma_separated(datasets), comma_separated(methods)
    request = Request(
        datasets=chosen_datasets,
        methods=chosen_methods,
        seeds=parse_seeds(seeds),
        overrides={} if epochs is None else {"epochs": epochs},
        command=command_line(what, seeds, chosen_datasets, chosen_methods, epochs, out)
        + (" --add" if add else ""),
    )
    names = list(TARGETS) if what == "all" else [what]
    found = run_reproduction(names, request, out, jobs or os.cpu_count() or 1, Console(stderr=True), add=add)
    page = None
    with keep_results():
        write_paper_files(out)
        page = out / PAGE
    if as_json:
        typer.echo(json.dumps(found))
    else:
        show(found, page)


def command_line(
    what: str,
    seeds: str,
    datasets: list[str] | None,
    methods: list[str] | None,
    epochs: int | None,
    out: Path,
) -> str:
    """Return the command that reproduces these results; an absolute folder is shortened to its name."""
    parts = ["bvat", "reproduce", what, "--seeds", seeds]
    for option, values in (("--datasets", datasets), ("--methods", methods)):
        parts += [option, ",".join(values)] if values else []
    parts += ["--epochs", str(epochs)] if epochs is not None else []
    return shlex.join([*parts, "--out", out.name if out.is_absolute() else str(out)])


def show(found: dict[str, dict[str, Any]], page: Path | None) -> None:
    """Print Table 2 and the claims."""
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False)
    if "table2" in found:
        result = found["table2"]
        table = Table(title=f"{result['title']}, last epoch (published mean)", title_justify="left")
        table.add_column("")
        for dataset in result["datasets"]:
            table.add_column(printable(dataset), justify="right")
        for method, title in result["methods"].items():
            row = result["cells"][method]
            table.add_row(title, *[cell_text(row.get(dataset)) for dataset in result["datasets"]])
        console.print(table)
    marks = {True: "yes ", False: "NO  ", None: "    "}
    for result in found.values():
        for claim in result["claims"]:
            console.print(marks[claim["holds"]] + claim["text"], highlight=False, markup=False)
    if page is not None:
        console.print(f"page: {page}", highlight=False, soft_wrap=True, markup=False)


def cell_text(cell: dict[str, Any] | None) -> str:
    """Return a cell of Table 2: mean ± standard deviation (published mean)."""
    if cell is None:
        return "–"
    ours = f"{cell['last']['mean']:.1f} ± {cell['last']['std']:.1f}"
    return ours if cell["paper"] is None else f"{ours} ({cell['paper']['mean']:.1f})"
