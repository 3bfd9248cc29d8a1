"""``bvat bench``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from bvat.cli.common import Json, print_json


def bench(
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Cora and Pubmed only, without growth and limit: about two minutes"),
    ] = False,
    as_json: Json = False,
    out: Annotated[
        Path | None,
        typer.Option(help="folder for bench.json, tables as CSV and charts as SVG", metavar="DIR"),
    ] = None,
) -> None:
    """Measure time and memory of the methods, and compare them with torch_geometric and the machine's limit.

    Sections: methods, torch_geometric's GCN, perturbation spaces, compiled
    kernels, growth, limit. What is compared is measured in turn, in one process
    with one thread; an epoch is the training step and the evaluation after it,
    as in bvat train. The full run takes about twenty minutes.

    Examples:

      bvat bench --quick

      bvat bench --json --out results/bench
    """
    from bvat.bench import plan
    from bvat.bench.run import run_bench
    from bvat.report.bench_files import check_folder, write_bench_files
    from bvat.report.bench_tables import print_tables

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
    else:
        print_tables(results)
