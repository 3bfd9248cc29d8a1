"""``bvat bench``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from bvat.cli.common import Json, print_json, print_lines
from bvat.errors import SettingsError

Table = tuple[str, tuple[str, ...], list[tuple[Any, ...]]]
"""Title, header and rows."""


def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="Cora and Pubmed only, and fewer rounds: about one minute")
    ] = False,
    as_json: Json = False,
    out: Annotated[
        Path | None,
        typer.Option(help="folder for bench.json", metavar="DIR"),
    ] = None,
) -> None:
    """Measure the epoch time of the methods on this machine.

    Two tables: the epoch time of each method relative to a GCN's, and PyG's GCN
    relative to ours, if torch_geometric is installed.

    What is compared is measured in turn, in one process with one thread. An
    epoch is the training step and the evaluation after it, as in bvat train.
    The full run, with Citeseer and NELL too, takes about five minutes.

    Examples:

      bvat bench --quick

      bvat bench --json --out results/bench
    """
    from bvat.bench import plan
    from bvat.bench.run import run_bench
    from bvat.data.files import write_json

    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)  # before minutes are spent
        except OSError as error:
            raise SettingsError(f"--out {out} cannot be a folder ({error.strerror}): use another") from None
    started = time.perf_counter()

    def log(text: str) -> None:
        typer.echo(f"[{time.perf_counter() - started:4.0f} s] {text}", err=True)

    results = run_bench(plan.QUICK if quick else plan.FULL, log)
    log("done")
    if out is not None:
        write_json(out / "bench.json", results)
    if as_json:
        print_json(results)
        return
    for title, header, rows in (_methods(results), _pyg(results)):
        if rows:
            print_lines(title, header, [tuple(map(_shown, row)) for row in rows])
            typer.echo()
    for line in results["skipped"]:
        typer.echo(f"skipped: {line}")


def _methods(results: dict[str, Any]) -> Table:
    ratios = results["ratios"]
    columns = {
        "epoch ms": results["epoch_ms"],
        "p10": results["epoch_ms_p10"],
        "step ms": results["step_ms"],
        "epoch / GCN": ratios["method_over_gcn"],
        "step / GCN": ratios["method_step_over_gcn_step"],
    }
    rows = [
        (dataset, method, *(column[dataset][method] for column in columns.values()))
        for dataset, row in results["epoch_ms"].items()
        for method in row
    ]
    title = "Methods (epoch: step and evaluation; step: training step alone)"
    return title, ("dataset", "method", *columns), rows


def _pyg(results: dict[str, Any]) -> Table:
    keys = ("epoch_ms", "epoch_ms_p10", "step_ms")
    ratios = [results["ratios"][key] for key in ("pyg_over_ours", "pyg_step_over_ours")]
    labels = {"ours": "ours", "edge_index": "PyG edge_index", "sparse": "PyG sparse"}
    rows = [
        (dataset, label, *(measured[form][key] for key in keys), *(r[dataset].get(form, 1.0) for r in ratios))
        for dataset, measured in results["pyg"].items()
        for form, label in labels.items()
        if form in measured
    ]
    header = ("dataset", "GCN", "epoch ms", "p10", "step ms", "epoch / ours", "step / ours")
    return "Our GCN and torch_geometric's", header, rows


def _shown(value: str | float | None) -> str:
    if value is None or isinstance(value, str):
        return value or "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
