"""``bvat compare``."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from bvat.cli import common
from bvat.cli.common import COUNT, HELD_OUT, MAX_COUNT, MAX_NODES, SEED, Jobs, Json, between
from bvat.cli.options import read_tuned
from bvat.errors import SettingsError
from bvat.training.settings import short_name


def compare(
    context: typer.Context,
    graphs: Annotated[list[str], Argument(help="names or paths of graphs with labels")],
    methods: Annotated[
        str | None,
        Option(
            help="methods, baselines (lp), models (appnp) and MODEL/METHOD, separated by commas "
            "(default: gcn, consistency, random, vat, sbvat, obvat, appnp, appnp/vat, auto)"
        ),
    ] = None,
    labels: Annotated[
        str | None, Option(help="training nodes per class, separated by commas (default: 5,20)")
    ] = None,
    splits: Annotated[
        str, Option(help="random splits per graph, or given for the splits that each graph has")
    ] = "10",
    seeds: Annotated[
        int | None,
        Option(help="training seeds per given split (default: 10, or 1 on each of several)", **COUNT),
    ] = None,
    val: Annotated[
        int | None, Option(help="validation nodes per split; 0: labels only (default: 500)", **HELD_OUT)
    ] = None,
    first_split: Annotated[
        int | None, Option(help="seed of the first random split (default: 0)", **SEED)
    ] = None,
    epochs: Annotated[
        int | None, Option(help="epochs at most (default: 300)", callback=between(4, MAX_NODES), metavar="N")
    ] = None,
    against: Annotated[str, Option(help="the method that all others are compared with")] = "gcn",
    out: Annotated[Path, Option(help="folder for compare.json, the page and the figures")] = Path("compare"),
    jobs: Jobs = None,
    report_only: Annotated[
        bool, Option("--report-only", help="train nothing: make the page from the splits that are finished")
    ] = False,
    metric: Annotated[
        str,
        Option(
            help="accuracy, macro_f1, micro_f1, roc_auc, average_precision, log_loss, ece, separated by "
            "commas",
            metavar="NAMES",
        ),
    ] = "accuracy",
    significance: Annotated[
        bool,
        Option(
            "--significance",
            help="p-values of paired permutation tests, and with three graphs and methods mean ranks",
        ),
    ] = False,
    budget: Annotated[
        float | None,
        Option(help="start no run after so many minutes, and say what is missing", metavar="MINUTES"),
    ] = None,
    directed: Annotated[
        bool, Option("--directed", help="edges keep their direction, from source to target")
    ] = False,
    settings: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="settings for the method that the file names, or for all; or a folder of bvat tune",
        ),
    ] = None,
    as_json: Json = False,
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

      bvat compare my-graph/ --methods gcn,auto --labels 1,2,5 --val 0

      bvat compare my-graph/ --splits given --seeds 10

      bvat compare a.npz b.npz c.npz --metric accuracy,ece --significance
    """
    from bvat.report.compare_page import write_compare_files
    from bvat.report.compare_tables import compare_markdown, notes_of
    from bvat.runs.run import keep_results
    from bvat.training.metrics import chosen_metrics
    from bvat.tuning.compare import collect
    from bvat.tuning.compare import compare as run_comparison
    from bvat.tuning.comparison import DEFAULT_VARIANTS, ComparisonPlan
    from bvat.tuning.variants import Variant

    if budget is not None and not budget > 0:
        raise SettingsError(f"--budget is {budget:g}: use a number of minutes above 0")
    chosen = common.comma_separated([methods or ""]) or list(DEFAULT_VARIANTS)
    against = Variant.parse(against).name
    if against not in chosen:
        chosen = [against, *chosen]
    how = _split_options(splits, seeds, {"labels": labels, "val": val, "first_split": first_split})
    shared, tuned = read_tuned(settings, [short_name(graph) for graph in graphs], chosen)
    metrics = chosen_metrics(common.comma_separated([metric]) or ())
    plan = ComparisonPlan(
        graphs=tuple(graphs),
        variants=tuple(chosen),
        **how,
        overrides=shared | ({} if epochs is None else {"epochs": epochs}),
        tuned=tuned,
        against=against,
        metrics=tuple(metrics),
        significance=significance,
        budget=budget,
        directed=directed,
        command=common.command_line(context, "out", "report_only", elsewhere=True),
    )
    run, console = collect if report_only else run_comparison, common.messages()
    result = run(plan, out, common.processes(jobs), console)
    page = None
    with nullcontext() if report_only else keep_results(console):
        page = write_compare_files(result, out)
    if as_json:
        common.print_json(result)
        common.print_notes(notes_of(result))
        return
    common.print_markdown(compare_markdown(result))
    if page is not None:
        typer.echo(f"page: {page}")


def _split_options(splits: str, seeds: int | None, random: dict[str, Any]) -> dict[str, Any]:
    """Return labels, splits and validation nodes of the plan; options of the other protocol are refused."""
    from bvat.tuning.comparison import GIVEN

    given = splits == GIVEN
    for name, value in (random if given else {"seeds": seeds}).items():
        if value is not None:
            kind, option = "given" if given else "random", "--" + name.replace("_", "-")
            raise SettingsError(f"{option} has no effect on {kind} splits: leave it out, or change --splits")
    if given:
        return {"labels": (GIVEN,), "splits": seeds}
    plan = {name: value for name, value in random.items() if value is not None}
    if "labels" in plan:
        parts = [part for part in plan["labels"].split(",") if part.strip()]
        numbers = [_whole_number("--labels", part, MAX_NODES, "separated by commas") for part in parts]
        plan["labels"] = tuple(dict.fromkeys(numbers))
    return {**plan, "splits": _whole_number("--splits", splits, MAX_COUNT, "or given")}


def _whole_number(option: str, text: str, most: int, hint: str) -> int:
    if not re.fullmatch(r"\s*[0-9]{1,10}\s*", text) or not 1 <= int(text) <= most:
        raise SettingsError(f"{option} takes whole numbers from 1 to {most:,}, {hint}, not {text!r}")
    return int(text)
