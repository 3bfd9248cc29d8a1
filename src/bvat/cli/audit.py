"""``bvat audit``."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bvat.baselines.table import BASELINES
from bvat.cli.options import NODES, PROCESSES, SEED
from bvat.cli.predict import Json, RunArgument, SpreadsheetSafe
from bvat.errors import SettingsError, printable

if TYPE_CHECKING:
    from torch import Tensor

    from bvat.audit.audit import Audit
    from bvat.graph import Graph
    from bvat.inference.runs import SavedRun


def audit(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="CSV file to write", show_default=False)],
    epsilon: Annotated[
        float, typer.Option(help="length of each row of the perturbation for LDS", metavar="X")
    ] = 0.03,
    compare: Annotated[str | None, typer.Option(help="another run on the same graph to compare with")] = None,
    page: Annotated[Path | None, typer.Option(help="HTML page to write")] = None,
    nodes: Annotated[
        int | None, typer.Option(help="number of nodes to audit, drawn at random (default: all)", **NODES)
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="seed of the model to audit (default: the run's first)", **SEED)
    ] = None,
    threads: Annotated[int, typer.Option(help="number of threads", **PROCESSES)] = 1,
    spreadsheet_safe: SpreadsheetSafe = False,
    as_json: Json = False,
) -> None:
    """Measure how fragile each prediction is, and write a table and, with --page, a web page.

    For each node, lds is how far its prediction moves (KL divergence) when every
    feature row around it is changed by at most epsilon, and smallest is the
    length of the smallest change of the features found that changes its class.
    A low lds and a large smallest are good.

    Examples:

      bvat audit runs/cora-obvat --out audit.csv

      bvat audit runs/cora-obvat --compare runs/cora-gcn --out a.csv --page a.html
    """
    from bvat.audit.audit import check_epsilon, sample_nodes
    from bvat.audit.tables import audit_csv
    from bvat.inference.runs import open_run
    from bvat.inference.tables import check_writable, write_text
    from bvat.training.pool import thread_count
    from bvat.training.provenance import versions

    check_epsilon(epsilon)
    check_writable(out, *([page] if page is not None else []))
    runs = [open_run(path) for path in (run, compare) if path is not None]
    if runs[-1].about["graph"] != runs[0].about["graph"]:
        raise SettingsError(
            f"{run} and {compare} were trained on different graphs or splits: compare runs on the same one"
        )
    graph = runs[0].graph()
    chosen = None if nodes is None else sample_nodes(graph, nodes)
    with thread_count(threads):
        audits = [_measure(each, graph, seed, epsilon, chosen) for each in runs]
    classifier, found = audits[0]
    labels = classifier.labels(graph)
    write_text(out, audit_csv(graph, classifier.class_names, labels, found, safe=spreadsheet_safe))
    if page is not None:
        from bvat.report.audit_page import AuditedRun, audit_page

        named = [AuditedRun(each.name, *part) for each, part in zip(runs, audits, strict=True)]
        options = [*(["--compare", compare] if compare else []), *(["--nodes", str(nodes)] if nodes else [])]
        options += ["--seed", str(seed)] if seed is not None else []
        command = ["bvat", "audit", run, "--epsilon", f"{epsilon:g}", *options, "--out", str(out)]
        write_text(page, audit_page(graph, named, shlex.join([*command, "--page", str(page)])))
    summaries = [{"run": each.name, **part.summary()} for each, (_, part) in zip(runs, audits, strict=True)]
    if as_json:
        written = {"out": str(out), "page": None if page is None else str(page)}
        typer.echo(json.dumps({**written, "runs": summaries, "versions": versions()}))
    else:
        show(summaries)
        typer.echo(f"{out}" if page is None else f"{out}, {page}")


def _measure(
    run: SavedRun, graph: Graph, seed: int | None, epsilon: float, chosen: Tensor | None
) -> tuple[Any, Audit]:
    """Audit one run, with a progress bar on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from bvat.audit.audit import audit as measure

    if run.method in BASELINES:
        raise SettingsError(
            f"{run.name} was fitted by {run.method}, which is no network that can be audited: audit a run of "
            "a model"
        )
    classifier = run.classifier(graph, run.seeds[0] if seed is None else seed)
    total = graph.num_nodes if chosen is None else chosen.numel()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("nodes"),
    )
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(printable(f"audit of {run.name}"), total=total)
        found = measure(
            classifier.models[0],
            graph,
            epsilon=epsilon,
            nodes=chosen,
            progress=lambda done: bar.update(task, completed=done),
        )
    return classifier, found


def show(summaries: list[dict[str, Any]]) -> None:
    """Print the medians, one column per run."""
    from rich.console import Console
    from rich.table import Table

    def text(value: float | None) -> str:
        return "none found" if value is None else f"{value:.4g}"

    title = f"{summaries[0]['nodes']} nodes, epsilon {summaries[0]['epsilon']:g}"
    table = Table(title=title, title_justify="left")
    table.add_column("median over the nodes")
    for summary in summaries:
        table.add_column(printable(summary["run"]), justify="right")
    for label, key in (
        ("LDS (lower is better)", "median_lds"),
        ("smallest change of class (higher is better)", "median_smallest"),
        ("the same, relative to the features around", "median_relative"),
    ):
        table.add_row(label, *(text(summary[key]) for summary in summaries))
    Console(markup=False).print(table)
