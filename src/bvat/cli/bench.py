"""``bvat bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from bvat.cli.common import Device, Json, print_json, print_table
from bvat.errors import SettingsError


def bench(
    quick: Annotated[
        bool, Option("--quick", help="Cora and Pubmed only, and fewer rounds: half a minute")
    ] = False,
    as_json: Json = False,
    device: Device = None,
    out: Annotated[Path | None, Option(help="folder for bench.json", metavar="DIR")] = None,
) -> None:
    """Measure the epoch time of the methods on this machine, also relative to a GCN's.

    The methods are measured in turn, in one process with one thread. An epoch
    is the training step and the evaluation after it, as in bvat train. The full
    run, with Citeseer and NELL too, takes about three minutes. --device cpu|cuda
    chooses where; the default is a GPU if there is one.

    Examples:

      bvat bench --quick

      bvat bench --json --out results/bench
    """
    from bvat.bench import measure
    from bvat.data.files import write_json
    from bvat.engine.cpu import choose_device

    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)  # before minutes are spent
        except OSError as error:
            raise SettingsError(f"--out {out} cannot be a folder ({error.strerror}): use another") from None
    device = choose_device(device)
    datasets, seconds = (("cora", "pubmed"), 8.0) if quick else (measure.DATASETS, 30.0)
    results = measure.run_bench(
        datasets, measure.Budget(seconds=seconds), lambda text: typer.echo(text, err=True), device=device
    )
    if out is not None:
        write_json(out / "bench.json", results)
    if as_json:
        print_json(results)
        return
    keys = ("epoch_ms", "step_ms", "over_gcn")
    for dataset, row in results["epoch_ms"].items():
        rows = [
            (measure.ROWS[method].title, *(f"{results[key][dataset][method]:.3g}" for key in keys))
            for method in row
        ]
        print_table(dataset, ("method", "epoch (ms)", "training step (ms)", "epoch / GCN"), rows)
