"""``bvat reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from bvat.baselines.table import all_methods
from bvat.cli import common
from bvat.cli.common import NODES, Jobs, Json


def reproduce(
    context: typer.Context,
    what: Annotated[str, Argument(help="table2, fig1a, fig1b, fig1c, fig3, fig4 or all")],
    seeds: Annotated[
        str,
        Option(
            help="number of seeds; 20,nell=10,nell:gat=5 has others for a data set and for a row of it; "
            "cheap stands for the cells of Table 2 whose runs take seconds (GCN, MoNet; Cora, Citeseer)"
        ),
    ] = "10,cheap=20",
    datasets: Annotated[
        list[str] | None,
        Option(help="names or paths, separated by commas or with the option repeated (default: the paper's)"),
    ] = None,
    methods: Annotated[
        list[str] | None, Option(help=f"{', '.join(all_methods())}, a model, or MODEL/METHOD (default: all)")
    ] = None,
    add: Annotated[
        bool, Option("--add", help="keep the rows of Table 2 in --out that are not computed again")
    ] = False,
    epochs: Annotated[int | None, Option(help="number of epochs (default: the presets')", **NODES)] = None,
    out: Annotated[Path, Option(help="folder for the results")] = Path("results/paper"),
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Reproduce tables and figures of the paper and compare them with the published numbers.

    The result of every run is stored: after an interruption, the same command does only the missing runs.

    Examples:

      bvat reproduce table2 --datasets cora --seeds 2

      bvat reproduce all --seeds 20,nell=10 --out results/paper
    """
    from bvat.paper.request import Request, parse_seeds
    from bvat.paper.targets import TARGETS
    from bvat.paper.targets import reproduce as run_reproduction
    from bvat.report.paper_page import figure_tables, table2_markdown, write_paper_files
    from bvat.runs.run import keep_results

    request = Request(
        datasets=common.comma_separated(datasets),
        methods=common.comma_separated(methods),
        seeds=parse_seeds(seeds),
        overrides={} if epochs is None else {"epochs": epochs},
        command=common.command_line(context, elsewhere=True),
    )
    names, console = list(TARGETS) if what == "all" else [what], common.messages()
    found = run_reproduction(names, request, out, common.processes(jobs), console, add=add)
    page = None
    with keep_results(console):
        page = write_paper_files(out)
    if as_json:
        common.print_json(found)
        return
    for result in found.values():
        if "cells" in result:
            common.print_markdown(table2_markdown(result))
        for table in figure_tables(result):
            common.print_table(*table)
    if page is not None:
        typer.echo(f"page: {page}")
