"""``bvat bench``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from bvat.cli.common import Json, print_json, print_lines


def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="Cora and Pubmed only, and fewer rounds: about two minutes")
    ] = False,
    as_json: Json = False,
    out: Annotated[
        Path | None,
        typer.Option(help="folder for bench.json, tables as CSV and charts as SVG", metavar="DIR"),
    ] = None,
) -> None:
    """Measure time and memory of the methods on this machine.

    Four tables: the epoch time of each method relative to a GCN's; PyG's GCN
    relative to ours, if torch_geometric is installed; the peak memory of each
    method, in a process of its own; and epochs without relative to epochs with
    compiled kernels, by hidden width.

    What is compared is measured in turn, in one process with one thread. An
    epoch is the training step and the evaluation after it, as in bvat train.
    The full run, with Citeseer and NELL too, takes about ten minutes.

    Examples:

      bvat bench --quick

      bvat bench --json --out results/bench
    """
    from bvat.bench import plan
    from bvat.bench.run import run_bench
    from bvat.report.bench_files import all_tables, check_folder, shown_value, write_bench_files

    if out is not None:
        check_folder(out)
    started = time.perf_counter()

    def log(text: str) -> None:
        typer.echo(f"[{time.perf_counter() - started:4.0f} s] {text}", err=True)

    results = run_bench(plan.QUICK if quick else plan.FULL, log)
    log("done")
    if out is not None:
        write_bench_files(results, out)
    if as_json:
        print_json(results)
        return
    for table in all_tables(results):
        print_lines(table.title, table.header, [tuple(map(shown_value, row)) for row in table.rows])
        typer.echo()
    for line in results["skipped"]:
        typer.echo(f"skipped: {line}")
