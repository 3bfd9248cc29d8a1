"""``bvat compare``."""

from __future__ import annotations

import json
import os
import re
import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from bvat.cli.options import COUNT, MAX_COUNT, MAX_NODES, NODES, PROCESSES, SEED, between, comma_separated
from bvat.errors import SettingsError, printable


def compare(
    graphs: Annotated[list[str], typer.Argument(help="names or paths of graphs with labels")],
    methods: Annotated[
        str | None,
        typer.Option(
            help="methods, baselines (lp), models (appnp) and MODEL/METHOD, separated by commas "
            "(default: gcn, consistency, random, vat, sbvat, obvat, appnp, appnp/vat, auto)"
        ),
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="training nodes per class, separated by commas (default: 5,20)")
    ] = None,
    splits: Annotated[
        str, typer.Option(help="random splits per graph, or given for the split that each graph has")
    ] = "10",
    seeds: Annotated[
        int | None, typer.Option(help="training seeds on given splits (default: 10)", **COUNT)
    ] = None,
    val: Annotated[
        int | None, typer.Option(help="validation nodes per random split (default: 500)", **NODES)
    ] = None,
    first_split: Annotated[
        int | None, typer.Option(help="seed of the first random split (default: 0)", **SEED)
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="epochs at most (default: 300)", callback=between(4, MAX_NODES), metavar="N"),
    ] = None,
    against: Annotated[str, typer.Option(help="the method that all others are compared with")] = "gcn",
    out: Annotated[Path, typer.Option(help="folder for compare.json, the page and the figures")] = Path(
        "compare"
    ),
    jobs: Annotated[
        int | None, typer.Option(help="number of parallel processes (default: one per core)", **PROCESSES)
    ] = None,
    report_only: Annotated[
        bool,
        typer.Option("--report-only", help="train nothing: make the page from the splits that are finished"),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")] = False,
) -> None:
    """Compare methods on splits of your graphs, with paired differences to a plain GCN or another one.

    Every method is trained on the same random splits, or with --splits given on
    the split that each graph has, with several seeds. The table shows the mean
    test accuracy, the mean difference to the GCN with its 95 % interval, and on
    how many splits it won and lost. Run the same command again to continue a
    comparison that was stopped.

    Examples:

      bvat compare my-graph/ --methods gcn,vat,appnp --labels 2,5,20 --splits 10

      bvat compare cora citeseer a.npz b.npz --out results/compare

      bvat compare my-graph/ --splits given --seeds 10
    """
    from rich.console import Console

    from bvat.cli.pages import keep_results
    from bvat.report.compare_page import write_compare_files
    from bvat.tuning.compare import DEFAULT_VARIANTS, GIVEN, ComparisonPlan, collect
    from bvat.tuning.compare import compare as run_comparison
    from bvat.tuning.variants import AUTO, Variant

    chosen = (comma_separated([methods]) if methods else None) or list(DEFAULT_VARIANTS)
    against = against if against == AUTO else Variant.parse(against).name
    if against not in chosen:
        chosen = [against, *chosen]
    parts = ["bvat", "compare", *[graph if "/" not in graph else Path(graph).name for graph in graphs]]
    given = splits == GIVEN
    no_use = {"--labels": labels, "--val": val, "--first-split": first_split} if given else {"--seeds": seeds}
    for option, value in no_use.items():
        if value is not None:
            kind = "given" if given else "random"
            raise SettingsError(f"{option} has no effect on {kind} splits: leave it out, or change --splits")
    labels, val, first_split, seeds = labels or "5,20", val or 500, first_split or 0, seeds or 10
    count = seeds if given else split_count(splits)
    parts += ["--methods", ",".join(chosen), "--splits", splits]
    parts += (
        ["--seeds", str(seeds)]
        if given
        else ["--labels", labels, "--val", str(val), "--first-split", str(first_split)]
    )
    parts += ["--epochs", str(epochs)] if epochs else []
    parts += ["--against", against] if against != "gcn" else []
    plan = ComparisonPlan(
        graphs=tuple(graphs),
        variants=tuple(chosen),
        labels=(GIVEN,) if given else tuple(numbers(labels)),
        splits=count,
        val=val,
        first_split=first_split,
        overrides={} if epochs is None else {"epochs": epochs},
        against=against,
        command=shlex.join(parts),
    )
    run = collect if report_only else run_comparison
    result = run(plan, out, jobs or os.cpu_count() or 1, Console(stderr=True))
    page = None
    with nullcontext() if report_only else keep_results():
        page = write_compare_files(out)
    if as_json:
        typer.echo(json.dumps(result))
    else:
        show(result, page)
    if result["split_note"]:
        typer.echo(printable(f"note: {result['split_note']}"), err=True)


def numbers(text: str) -> list[int]:
    """Read whole numbers separated by commas."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(re.fullmatch("0*[1-9][0-9]{0,8}", part) for part in parts):
        raise SettingsError(f"--labels takes whole numbers separated by commas, such as 2,5,20, not {text!r}")
    return list(dict.fromkeys(int(part) for part in parts))


def split_count(text: str) -> int:
    """Read the number of random splits."""
    if not re.fullmatch("[0-9]{1,9}", text) or not 1 <= int(text) <= MAX_COUNT:
        raise SettingsError(f"--splits takes a whole number from 1 to {MAX_COUNT:,}, or given, not {text!r}")
    return int(text)


def show(result: dict[str, Any], page: Path | None) -> None:
    """Print a table per number of labels."""
    from rich.console import Console
    from rich.table import Table

    from bvat.report.compare_page import heading

    console = Console(markup=False)
    for labels in result["labels"]:
        rows = [row for row in result["rows"] if row["labels"] == labels]
        if not rows:
            continue
        base = result["variants"][result["base"]]["title"]
        title = f"{heading(labels)}: test accuracy (%), and points against {base}"
        table = Table(title=title, title_justify="left")
        table.add_column("")
        for row in rows:
            table.add_column(printable(row["graph"]), justify="right")
        table.add_column("all graphs", justify="right")
        for name, about in result["variants"].items():
            cells = [cell_text(row["variants"][name], plain=name == result["base"]) for row in rows]
            whole = result["overall"][str(labels)][name]
            table.add_row(about["title"], *cells, "" if name == result["base"] else f"{whole['mean']:+.1f}")
        console.print(table)
    if page is not None:
        console.print(f"page: {page}", highlight=False, soft_wrap=True, markup=False)


def cell_text(entry: dict[str, Any], *, plain: bool) -> str:
    """Return the accuracy, and for all but the base the difference with half the width of its interval."""
    if plain:
        return f"{entry['mean']:.1f}"
    gain = entry["gain"]
    half = f" ± {(gain['high'] - gain['low']) / 2:.1f}" if gain["n"] > 1 else ""
    return f"{entry['mean']:.1f} ({gain['mean']:+.1f}{half})"
