"""``bvat explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bvat.cli import common
from bvat.errors import SettingsError, printable


def explain(
    run: common.RunArgument,
    node: Annotated[str, typer.Option(help="id of the node", metavar="ID", show_default=False)],
    seed: Annotated[
        int | None,
        typer.Option(help="seed of the model to explain (default: the run's first)", **common.SEED),
    ] = None,
    top: Annotated[int, typer.Option(help="neighbours and features to list", **common.COUNT)] = 10,
    out: Annotated[Path | None, typer.Option(help="page (.html) or table (.csv) to write")] = None,
    model: common.Models = None,
    as_json: common.Json = False,
) -> None:
    """Say why a node got its class: the neighbours and features that carried the decision.

    A share is what a neighbour or feature adds to the lead of the predicted class
    over the next one; negative shares speak for the next one. The smallest change
    of the features that changes the class is that of bvat audit. The page has
    a picture of the neighbourhood; the table lists all contributions.

    Examples:

      bvat explain runs/papers --node p17

      bvat explain runs/papers --node p17 --out why.html
    """
    from bvat.inference.runs import open_run
    from bvat.inference.tables import check_writable, write_text
    from bvat.trust.explain import explain as explained

    if out is not None:
        check_writable(out)
        if out.suffix not in (".html", ".csv"):
            raise SettingsError(f"{out} is neither a page nor a table: end its name in .html or .csv")
    trained = open_run(run, model or ())
    graph, seed = trained.graph(), trained.seeds[0] if seed is None else seed
    found = explained(trained.classifier(graph, seed), graph, node)
    if out is not None and out.suffix == ".csv":
        write_text(out, found.csv())
    elif out is not None:
        from bvat.report.explain_page import explain_page

        command = common.command_line("bvat", "explain", run, node=node, seed=seed, top=top, out=out)
        write_text(out, explain_page(graph, found, trained.name, top, command))
    if as_json:
        where = None if out is None else str(out)
        common.print_json({"run": trained.name, "seed": seed, "out": where, **found.as_dict(top)})
    else:
        show(found, top)
        if out is not None:
            typer.echo(f"{out}")


def show(found: Any, top: int) -> None:
    p, neighbours, features = found.probabilities, found.node_columns, found.feature_columns
    for name, value in (
        (found.id, f"{found.predicted}, probability {p[found.predicted]:.3f}"),
        ("next class", f"{found.next}, probability {p[found.next]:.3f}"),
        ("label", found.label or "unknown"),
        ("smallest change of class", found.change_text()),
    ):
        typer.echo(printable(f"{name}: {value}"))
    shown = found.as_dict(top)
    typer.echo()
    common.print_lines(
        f"neighbours, {len(shown['neighbours'])} of {neighbours['node'].size:,} that contributed",
        ("share", "hops", "predicted", "label", "node"),
        [
            (f"{100 * row['share']:+.1f} %", row["hops"] if row["hops"] >= 0 else None, row["predicted"],
             row["label"] or None, row["id"])
            for row in shown["neighbours"]
        ],
    )  # fmt: skip
    typer.echo()
    common.print_lines(
        f"features, {len(shown['features'])} of {features['feature'].size:,} that contributed",
        ("share", "own value", "feature"),
        [(f"{100 * r['share']:+.1f} %", f"{r['value']:.3g}", r["feature"]) for r in shown["features"]],
    )
