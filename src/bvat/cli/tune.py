"""``bvat tune``."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from bvat.cli.graph_options import SplitSeed, Test, Text, TrainPerClass, Val, read_graph, split_options
from bvat.cli.options import COUNT, NODES, PROCESSES
from bvat.errors import printable
from bvat.perturb.methods import METHODS


def tune(
    dataset: Annotated[str, typer.Argument(help="cora, citeseer, pubmed, nell, or a path to a graph")],
    method: Annotated[
        str, typer.Option(help=", ".join(name for name, row in METHODS.items() if row.space))
    ] = "obvat",
    trials: Annotated[int, typer.Option(help="total number of trials, including earlier ones", **COUNT)] = 40,
    seeds: Annotated[int, typer.Option(help="seeds per trial", **COUNT)] = 5,
    finalists: Annotated[int, typer.Option(help="number of best trials that are trained again", **COUNT)] = 5,
    check_seeds: Annotated[
        int, typer.Option(help="number of other seeds to compare them with", **COUNT)
    ] = 10,
    storage: Annotated[
        str | None, typer.Option(help="Optuna storage URL or journal file (default: a journal in OUT/work)")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="number of epochs (default: the preset's)", **NODES)
    ] = None,
    out: Annotated[Path, typer.Option(help="folder for the result, DATASET-METHOD.json")] = Path(
        "results/tune"
    ),
    jobs: Annotated[
        int | None, typer.Option(help="number of parallel processes (default: one per core)", **PROCESSES)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")] = False,
    text: Text = None,
    train_per_class: TrainPerClass = None,
    val: Val = None,
    test: Test = None,
    split_seed: SplitSeed = 0,
) -> None:
    """Search for settings with the best validation accuracy.

    The search does not see the test labels. Run the same command again to
    continue a search that was stopped, or with more --trials to extend it;
    several machines can share one --storage.

    Examples:

      bvat tune cora --method sbvat --trials 60

      bvat tune my-graph/ --method obvat --storage sqlite:///search.db
    """
    from rich.console import Console

    from bvat.tuning.storage import require_optuna
    from bvat.tuning.tune import TuningPlan
    from bvat.tuning.tune import tune as run_search

    require_optuna()
    plan = TuningPlan(
        dataset=dataset,
        method=method,
        trials=trials,
        seeds=seeds,
        finalists=finalists,
        check_seeds=check_seeds,
        overrides={} if epochs is None else {"epochs": epochs},
        command=shlex.join(
            ["bvat", "tune", dataset, "--method", method, "--trials", str(trials), "--seeds", str(seeds)]
            + ["--finalists", str(finalists), "--check-seeds", str(check_seeds)]
            + (["--epochs", str(epochs)] if epochs is not None else [])
            + split_options(text, train_per_class, val, test, split_seed)
        ),
    )
    graph = read_graph(dataset, text, train_per_class, val, test, split_seed)
    result = run_search(plan, graph, out, jobs or os.cpu_count() or 1, storage, Console(stderr=True))
    if as_json:
        typer.echo(json.dumps(result))
    else:
        show(result, out / f"{plan.name}.json")


def show(result: dict[str, Any], path: Path) -> None:
    """Print the finalists and mark the chosen one."""
    from rich.console import Console
    from rich.table import Table

    from bvat.training.statistics import accuracy_text

    table = Table(title=printable(f"{result['method']} on {result['dataset']}"), title_justify="left")
    table.add_column("")
    table.add_column("validation accuracy", justify="right")
    table.add_column("settings")
    for entry in result["finalists"]:
        mark = "→ " if entry["settings"] == result["chosen"] else "  "
        val = entry["val"]
        settings = ", ".join(f"{name} {value}" for name, value in entry["settings"].items())
        reached = accuracy_text(val["mean"], result["graph"]["val"], val["std"] if val["n"] > 1 else None)
        table.add_row(mark + entry["from"], reached, settings)
    console = Console(markup=False)
    console.print(table)
    states = [trial["state"] for trial in result["trials"]]
    console.print(f"{len(states)} trials, {states.count('pruned')} of them pruned")
    console.print(f"result: {path}", highlight=False, soft_wrap=True, markup=False)
