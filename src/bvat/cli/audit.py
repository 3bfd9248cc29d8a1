"""``bvat audit``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    from bvat.audit.kept import KeptAudits
    from bvat.graph import Graph
    from bvat.inference.classifier import Classifier
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

    Rows are written as they are found. Run the same command again to continue
    an audit that was stopped; what it needs for that is in OUT.part.

    Examples:

      bvat audit runs/cora-obvat --out audit.csv

      bvat audit runs/cora-obvat --compare runs/cora-gcn --out a.csv --page a.html
    """
    import torch

    from bvat.audit.audit import check_epsilon, sample_nodes
    from bvat.audit.tables import audit_csv
    from bvat.inference.runs import open_run
    from bvat.inference.tables import check_writable, write_text
    from bvat.store.pool import thread_count
    from bvat.training.provenance import versions

    check_epsilon(epsilon)
    check_writable(out, *([page] if page is not None else []))
    runs = [open_run(path) for path in (run, compare) if path is not None]
    if runs[-1].about["graph"] != runs[0].about["graph"]:
        raise SettingsError(
            f"{run} and {compare} were trained on different graphs or splits: compare runs on the same one"
        )
    graph = runs[0].graph()
    chosen = torch.arange(graph.num_nodes) if nodes is None else sample_nodes(graph, nodes)
    models = [_classifier(each, graph, seed) for each in runs]
    labels = models[0].labels(graph)

    def table(found: Audit) -> str:
        return audit_csv(graph, models[0].class_names, labels, found, safe=spreadsheet_safe)

    with _kept(out, runs[0].about["graph"], epsilon, chosen, models) as kept, thread_count(threads):
        found: list[Audit] = []
        for each, model in zip(runs, models, strict=True):
            batches = kept.audit(len(found), model.models[0], graph, epsilon=epsilon, nodes=chosen)
            found.append(
                _measure(each.name, batches, chosen.numel(), None if found else out, table, kept.path)
            )
        write_text(out, table(found[0]))
        if page is not None:
            from bvat.report.audit_page import AuditedRun, audit_page

            named = [
                AuditedRun(r.name, model, part) for r, model, part in zip(runs, models, found, strict=True)
            ]
            options = [
                *(["--compare", compare] if compare else []),
                *(["--nodes", str(nodes)] if nodes else []),
            ]
            options += ["--seed", str(seed)] if seed is not None else []
            command = ["bvat", "audit", run, "--epsilon", f"{epsilon:g}", *options, "--out", str(out)]
            write_text(page, audit_page(graph, named, shlex.join([*command, "--page", str(page)])))
    summaries = [{"run": each.name, **part.summary()} for each, part in zip(runs, found, strict=True)]
    if as_json:
        written = {"out": str(out), "page": None if page is None else str(page)}
        typer.echo(json.dumps({**written, "runs": summaries, "versions": versions()}))
    else:
        show(summaries)
        typer.echo(f"{out}" if page is None else f"{out}, {page}")


def _classifier(run: SavedRun, graph: Graph, seed: int | None) -> Classifier:
    if run.method in BASELINES:
        raise SettingsError(
            f"{run.name} was fitted by {run.method}, which is no network that can be audited: audit a run of "
            "a model"
        )
    return run.classifier(graph, run.seeds[0] if seed is None else seed)


@contextmanager
def _kept(
    out: Path, graph: str, epsilon: float, nodes: Tensor, models: list[Classifier]
) -> Iterator[KeptAudits]:
    """Open ``OUT.part``, which keeps what is found until the table is complete; a device or pipe has none."""
    from safetensors.torch import save

    from bvat.audit.kept import KeptAudits
    from bvat.data.checksums import sha256
    from bvat.store.claim import taken
    from bvat.training.provenance import digest, versions

    about = {
        "model": [[m.settings.as_dict(), sha256(save(m.models[0].state_dict()))] for m in models],
        "graph": graph,
        "epsilon": epsilon,
        "choice of nodes": digest(nodes.tolist()),
        "version of bvat or torch": versions(),
    }
    if out.is_symlink() or (out.exists() and not out.is_file()):  # also /dev/stdout
        yield KeptAudits(None, about)
        return
    path = Path(f"{out}.part")
    with taken(path, wait=False) as mine:
        if not mine:
            raise SettingsError(
                f"another process is writing {out}: wait until it has ended, or use another --out"
            )
        yield KeptAudits(path, about)


def _measure(
    name: str,
    batches: Iterator[Audit],
    total: int,
    out: Path | None,
    table: Callable[[Audit], str],
    kept: Path | None,
) -> Audit:
    """Return all batches as one, with a progress bar; where they are kept, ``out`` gets rows as they come."""
    from rich.console import Console

    from bvat.audit.audit import Audit
    from bvat.data.files import append
    from bvat.inference.tables import write_text
    from bvat.store.progress import ProgressDisplay

    parts: list[Audit] = []
    done = 0
    try:
        with ProgressDisplay(
            f"audit of {name}", {0: total}, Console(stderr=True), unit="nodes", lines=True
        ) as display:
            for part in batches:
                if out and kept and parts:
                    append(out, table(part).partition("\n")[2])  # without the names of the columns
                elif out and kept:
                    write_text(out, table(part))
                parts.append(part)
                done += part.nodes.numel()
                display.update(0, done)
    except KeyboardInterrupt:
        where = f"kept in {out or kept}" if kept else "lost, because --out is not a regular file"
        typer.echo(printable(f"note: {done:,} of {total:,} nodes of {name} are {where}"), err=True)
        raise
    return Audit.joined(parts)


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
    counts = [f"{summary['not_found']:,} of {summary['nodes']:,}" for summary in summaries]
    table.add_row("nodes for which no change of class was found", *counts)
    Console(markup=False).print(table)
