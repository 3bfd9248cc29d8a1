"""``bvat audit``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bvat.cli import common


def audit(
    context: typer.Context,
    run: common.RunArgument,
    out: Annotated[Path, typer.Option(help="CSV file to write", show_default=False)],
    epsilon: Annotated[
        float, typer.Option(help="length of each row of the perturbation for LDS", metavar="X")
    ] = 0.03,
    compare: Annotated[str | None, typer.Option(help="another run on the same graph to compare with")] = None,
    page: Annotated[Path | None, typer.Option(help="HTML page to write")] = None,
    nodes: Annotated[
        int | None,
        typer.Option(help="number of nodes to audit, drawn at random (default: all)", **common.NODES),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="seed of the model to audit (default: the run's first)", **common.SEED)
    ] = None,
    certify: Annotated[
        bool, typer.Option("--certify", help="also prove how far each prediction holds")
    ] = False,
    threads: Annotated[int, typer.Option(help="number of threads", **common.PROCESSES)] = 1,
    model: common.Models = None,
    as_json: common.Json = False,
) -> None:
    """Measure how fragile each prediction is, and write a table and, with --page, a web page.

    For each node, lds is how far its prediction moves (KL divergence) when every
    feature row around it is changed by at most epsilon, and smallest is the
    length of the smallest change of the features found that changes its class.
    A low lds and a large smallest are good. With --certify, certified is a length
    below which no change of the features changes the class: that is proved. Both
    are then also written for changes that are measured by their longest row, and
    for those of one row (_rows, _node).

    Run the same command again to continue an audit that was stopped; what it
    needs for that is in OUT.part. A run with a model of your own needs --model
    module:Class again; with --compare that may be given twice.

    Examples:

      bvat audit runs/cora-obvat --out audit.csv

      bvat audit runs/cora-obvat --compare runs/cora-gcn --out a.csv --page a.html
    """
    from bvat.runs.audits import AuditPlan
    from bvat.training.provenance import versions

    plan = AuditPlan(
        runs=[run] if compare is None else [run, compare],
        out=out,
        epsilon=epsilon,
        nodes=nodes,
        seed=seed,
        threads=threads,
        page=page,
        certify=certify,
        models=tuple(model or ()),
        command=common.command_line(context),
    )
    summaries = plan.carry_out(common.messages())
    if as_json:
        written = {"out": str(out), "page": None if page is None else str(page)}
        common.print_json({**written, "runs": summaries, "versions": versions()})
    else:
        show(summaries)
        typer.echo(f"{out}" if page is None else f"{out}, {page}")


def show(summaries: list[dict[str, Any]]) -> None:
    from bvat.audit.result import interval

    measures = {
        "median_lds": "LDS (lower is better)",
        "median_smallest": "smallest change of class (higher is better)",
        "median_relative": "the same, relative to the features around",
    }
    rows = [
        (text, *("none found" if each[name] is None else f"{each[name]:.4g}" for each in summaries))
        for name, text in measures.items()
    ]
    for budget in summaries[0]["budgets"]:
        shown = [interval(each, budget) for each in summaries]
        rows.append((f"certified to found, budget {budget}", *shown))
    counts = [f"{summary['not_found']:,} of {summary['nodes']:,}" for summary in summaries]
    common.print_table(
        f"{summaries[0]['nodes']} nodes, epsilon {summaries[0]['epsilon']:g}",
        ("median over the nodes", *(summary["run"] for summary in summaries)),
        [*rows, ("nodes for which no change of class was found", *counts)],
    )
