"""``bvat tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from bvat.cli import common
from bvat.cli.common import COUNT, NODES, Jobs, Json
from bvat.models.table import MODELS
from bvat.perturb.methods import METHODS, PLAIN


@common.with_graph_options
def tune(
    context: typer.Context,
    dataset: Annotated[str, Argument(help="cora, citeseer, pubmed, nell, or a path to a graph")],
    method: Annotated[
        str,
        Option(
            help=f"{', '.join(name for name, row in METHODS.items() if row.space)}, or {PLAIN} for the model"
        ),
    ] = "obvat",
    model: Annotated[
        str, Option(help=f"one of {', '.join(MODELS)}, or module:Class of your own", metavar="NAME")
    ] = "gcn",
    trials: Annotated[int, Option(help="total number of trials, including earlier ones", **COUNT)] = 40,
    seeds: Annotated[int, Option(help="seeds per trial at most", **COUNT)] = 5,
    finalists: Annotated[int, Option(help="number of best trials that are trained again", **COUNT)] = 5,
    check_seeds: Annotated[int, Option(help="number of other seeds to compare them with", **COUNT)] = 10,
    epochs: Annotated[int | None, Option(help="number of epochs (default: the preset's)", **NODES)] = None,
    out: Annotated[Path, Option(help="folder for the result, DATASET-METHOD.json")] = Path("results/tune"),
    jobs: Jobs = None,
    as_json: Json = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Search for settings with the best validation accuracy.

    With --method none those of the plain model are searched: lr, weight_decay,
    dropout and hidden. The search does not see the test labels. Run the same
    command again to continue a search that was stopped, or with more --trials
    to extend it; several processes can share one --out.

    Examples:

      bvat tune cora --method sbvat --trials 60

      bvat tune my-graph/ --method obvat --out search

      bvat tune my-graph/ --method none --model appnp --val 200
    """
    from bvat.data.files import write_atomic
    from bvat.report.tune_page import tune_page
    from bvat.runs.run import keep_results
    from bvat.tuning.storage import require_optuna
    from bvat.tuning.tune import TuningPlan
    from bvat.tuning.tune import tune as run_search

    require_optuna()
    plan = TuningPlan(
        dataset=dataset,
        method=method,
        model=model,
        trials=trials,
        seeds=seeds,
        finalists=finalists,
        check_seeds=check_seeds,
        overrides={} if epochs is None else {"epochs": epochs},
        command=common.command_line(context, "out"),
    )
    graph = common.read_graph(dataset, reading)
    console = common.messages()
    result = run_search(plan, graph, out, common.processes(jobs), console)
    with keep_results(console):
        write_atomic(out / f"{plan.name}.html", tune_page(result))
    if as_json:
        common.print_json(result)
    else:
        show(result, out / f"{plan.name}.json")


def show(result: dict[str, Any], path: Path) -> None:
    from bvat.training.statistics import accuracy_text
    from bvat.tuning.variants import Variant

    rows = []
    for entry in result["finalists"]:
        mark = "→ " if entry["settings"] == result["chosen"] else "  "
        val = entry["val"]
        settings = ", ".join(f"{name} {value}" for name, value in entry["settings"].items())
        reached = accuracy_text(val["mean"], result["graph"]["val"], val["std"] if val["n"] > 1 else None)
        rows.append((mark + entry["from"], reached, settings))
    title = f"{Variant(result['model'], result['method']).name} on {result['dataset']}"
    common.print_table(title, ("", "validation accuracy", "settings"), rows, left=(2,))
    states = [trial["state"] for trial in result["trials"]]
    typer.echo(f"{len(states)} trials, {states.count('pruned')} of them pruned")
    typer.echo(f"result: {path}")
    typer.echo(f"settings: {path.with_suffix('.toml')}")
    if path.with_suffix(".html").exists():
        typer.echo(f"page: {path.with_suffix('.html')}")
