"""``bvat bench``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer


def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="Cora and Pubmed only, without growth and limit: two minutes")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")] = False,
    out: Annotated[
        Path | None, typer.Option(help="folder for bench.json, tables as CSV, and plots", metavar="DIR")
    ] = None,
) -> None:
    """Measure time and memory: methods, torch_geometric's GCN, perturbation spaces, growth, and the limit.

    Everything that is compared is measured in turn in one process with one thread; an epoch is the training
    step and the evaluation after it, as in bvat train. The full run takes a quarter of an hour.

    Examples:

      bvat bench --quick

      bvat bench --json --out results/bench
    """
    from bvat.bench import plan
    from bvat.bench.output import check_folder, write_results
    from bvat.bench.run import run_bench
    from bvat.bench.tables import show

    if out is not None:
        check_folder(out)
    started = time.perf_counter()

    def report(text: str) -> None:
        typer.echo(f"[{time.perf_counter() - started:4.0f} s] {text}", err=True)

    results = run_bench(plan.QUICK if quick else plan.FULL, report)
    report("done")
    notes = write_results(results, out) if out is not None else []
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    if as_json:
        typer.echo(json.dumps(results, allow_nan=False))
    else:
        show(results)
