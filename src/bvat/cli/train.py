"""``bvat train``."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bvat.baselines.table import ALL_METHODS, BASELINES
from bvat.cli.graph_options import SplitSeed, Test, Text, TrainPerClass, Val, read_graph
from bvat.cli.options import COUNT, PROCESSES, SEED, with_settings
from bvat.errors import SettingsError, printable

if TYPE_CHECKING:
    from bvat.graph import Graph
    from bvat.store.folder import RunFolder
    from bvat.training.settings import Settings
    from bvat.tuning.cross_validation import Choice


SAME_RESULT = ("dataset", "method", "seeds", "seed", "jobs", "out", "resume", "as_json", "report", "log",
               "rank_timeout")  # fmt: skip
"""Parameters of ``bvat train`` that its page need not repeat as options: they change no number, or are there
anyway."""


@with_settings("epochs", "method", "space")
def train(
    dataset: Annotated[
        str, typer.Argument(help="cora, citeseer, pubmed, nell, or a path to a graph or its parts")
    ] = "cora",
    method: Annotated[
        str | None,
        typer.Option(
            help=f"auto, {', '.join(ALL_METHODS)} (default: obvat for the paper's data sets, else auto)",
            autocompletion=lambda: ["auto", *ALL_METHODS],
        ),
    ] = None,
    budget: Annotated[
        str, typer.Option(help="time that auto may take to compare methods: 90s, 2m, 1h", show_default=True)
    ] = "2m",
    seeds: Annotated[int, typer.Option(help="number of seeds to train", **COUNT)] = 1,
    seed: Annotated[int, typer.Option(help="the first seed", **SEED)] = 0,
    epochs: Annotated[
        int | None, typer.Option(help="number of epochs (default: the preset's)", metavar="N")
    ] = None,
    space: Annotated[
        str | None, typer.Option(help="auto, dense, sparse or factored (default: the preset's)")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    jobs: Annotated[
        int | None, typer.Option(help="number of parallel processes (default: one per core)", **PROCESSES)
    ] = None,
    threads: Annotated[
        int, typer.Option(help="threads per process; more than one changes the rounding", **PROCESSES)
    ] = 1,
    out: Annotated[
        Path | None, typer.Option(help="run folder (default: a new one, runs/DATASET-METHOD)")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue an unfinished run")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")] = False,
    report: Annotated[bool, typer.Option(help="write report.html to the run folder")] = True,
    log: Annotated[
        Literal["csv", "tensorboard"] | None,
        typer.Option(
            help="log every epoch while training runs: to metrics.csv or for TensorBoard, in the seed folders"
        ),
    ] = None,
    text: Text = None,
    train_per_class: TrainPerClass = None,
    val: Val = None,
    test: Test = None,
    split_seed: SplitSeed = 0,
    rank_timeout: Annotated[
        float, typer.Option(help="seconds to wait for another rank under torchrun", metavar="SECONDS")
    ] = 600.0,
    batch_parts: Annotated[
        int | None,
        typer.Option(help="train on this many parts at a time, without the edges to others", metavar="N"),
    ] = None,
    order: Annotated[
        str,
        typer.Option(help="put neighbours close in memory, faster on large graphs: metis, rcm or none"),
    ] = "none",
    *,
    overrides: dict[str, Any],
    changed: dict[str, Any],
) -> None:
    """Train on a data set, print a table, and write a run folder.

    On your own graph, auto compares methods and models on validation data and
    keeps the best. Without a split all labelled nodes are training nodes, and
    cross-validation says how many epochs to train and how accurate the model
    is; --test N holds some out. Settings that are not given come from the preset
    of the data set and method, or from the defaults for any graph. Ctrl-C,
    SIGTERM and SIGHUP save a checkpoint at the end of the current epoch; a crash
    loses at most the last 50 epochs. Use --resume to continue.

    Examples:

      bvat train

      bvat train citeseer --method sbvat --seeds 10

      bvat train my-graph/ --budget 5m --seeds 3

      bvat train pubmed --method obvat --alpha 0.5 --json

      torchrun --nproc-per-node 4 -m bvat train parts/ --method obvat
    """
    from rich.console import Console

    from bvat.cli.ranks import in_order, join_parts, name_of_parts, resumes
    from bvat.engine.world import current
    from bvat.store.claim import claim
    from bvat.store.folder import RunFolder, choose_folder
    from bvat.store.progress import ProgressDisplay
    from bvat.store.results import summary_of
    from bvat.store.store import SeedTrainer, train_seeds
    from bvat.training.callbacks import tensorboard_writer
    from bvat.training.provenance import graph_fingerprint
    from bvat.training.settings import preset, preset_key, short_name
    from bvat.tuning.auto import candidates_for, parse_budget
    from bvat.tuning.cross_validation import lacks_validation
    from bvat.tuning.variants import AUTO, settings_of

    given, dataset = dataset, name_of_parts(dataset, method)
    resume = resumes(resume, out)
    named = {"epochs": epochs, "space": space}
    overrides |= {name: value for name, value in named.items() if value is not None}
    method = method or ("obvat" if preset_key(dataset) else AUTO)
    seconds = parse_budget(budget)
    if "budget" in changed and method != AUTO:
        raise SettingsError(f"budget has no effect with {method}: leave it out, it belongs to auto")
    settings = None if method == AUTO else preset(preset_key(dataset), method, **overrides)
    if settings is None:  # wrong values are refused before the graph is read
        settings_of(candidates_for(overrides), overrides)
    chosen_device = choose_device(device)
    if log == "tensorboard":
        tensorboard_writer()  # a missing package is noticed before anything is trained
    same = {"seed": seed, "seeds": seeds, "resume": resume}
    graph = join_parts(given, settings, rank_timeout, batch_parts, **same)
    if graph is None:
        graph = read_graph(dataset, text, train_per_class, val, test, split_seed)
    here, label = current(), f"{short_name(dataset)}-{method}"
    folder = here.agree(
        lambda: RunFolder(out) if out is not None else choose_folder(Path("runs"), label, resume=resume)
    )
    with claim(folder.path) if here.leads else nullcontext():
        choice = None
        if settings is None or lacks_validation(graph):
            folder.check_new(resume=resume)
            asked = {"method": method, "graph": graph_fingerprint(graph), **overrides}
            choice = choose_method(folder, graph, settings, asked, seconds, jobs or os.cpu_count() or 1)
            settings, graph = choice.settings, choice.graph
        elif not here.total(graph.val.numel()) and here.leads:  # all ranks ask for the sum
            typer.echo("note: there are no validation nodes: training runs to its last epoch", err=True)
        if here.leads:
            folder.start(graph, settings, resume=resume or choice is not None)  # AUTO_FILE is there already
        logs = (log,) if log else ()
        trainer = SeedTrainer(
            folder, in_order(graph, order), settings, resume=resume, device=chosen_device, log=logs
        )
        numbers = list(range(seed, seed + seeds))
        with ProgressDisplay(
            f"{method} on {graph.name}",
            dict.fromkeys(numbers, settings.epochs),
            Console(stderr=True, quiet=not here.leads),
            labels={number: f"seed {number}" for number in numbers},
            unit="epochs",
        ) as display:
            processes = 1 if here.rowwise else jobs or min(seeds, os.cpu_count() or 1)

            def advance(number: int, done: float) -> None:
                display.update(number, done)
                finished = folder.result(number) if done >= settings.epochs and here.leads else None
                if finished and finished.get("stopped"):
                    display.set_title(f"{method} on {graph.name} (seed {number} {finished['stopped']})")

            results = train_seeds(trainer, numbers, processes, advance, threads=threads)
        summary = summary_of(graph, settings, results, choice.estimate if choice is not None else None)
        if not here.leads:
            return
        if choice is not None:
            summary["events"] += choice.notes
        if choice is not None and choice.report is not None:
            summary["auto"] = choice.report
        folder.summarize(numbers, summary)
        if report:
            options = {name: value for name, value in changed.items() if name not in SAME_RESULT}
            write_page(folder, graph, settings, numbers, summary, given, method, options)
    if as_json:
        typer.echo(json.dumps({**summary, "run": str(folder.path)}))
    else:
        show(summary, folder.path)


def write_page(
    folder: RunFolder,
    graph: Graph,
    settings: Settings,
    seeds: list[int],
    summary: dict[str, Any],
    dataset: str,
    method: str,
    options: dict[str, Any],
) -> None:
    """Write the page of a run; an error here must not lose the trained model."""
    from bvat.cli.pages import keep_results

    with keep_results():
        from bvat.cli.ranks import whole
        from bvat.report.run_page import train_command, write_run_page

        command = train_command(dataset, method, seeds, options)
        with whole(graph) as complete:
            write_run_page(folder, complete, settings, seeds, summary, command)


def choose_method(
    folder: RunFolder,
    graph: Graph,
    settings: Settings | None,
    asked: dict[str, Any],
    budget: float,
    jobs: int,
) -> Choice:
    """Return the choice stored in the run folder, or make and store it now.

    Args:
        folder: of the run.
        graph: to train on.
        settings: of the method that was asked for; None lets ``auto`` choose one.
        asked: what the choice depends on: method, graph and settings that were given.
        budget: seconds for ``auto``.
        jobs: number of parallel processes.
    """
    from rich.console import Console

    from bvat.store.folder import AUTO_FILE, difference
    from bvat.tuning.auto import choose
    from bvat.tuning.cross_validation import Choice, cross_validate

    if (folder.path / AUTO_FILE).exists():
        stored = folder.read(AUTO_FILE)
        if stored.get("asked") != asked:
            change = difference("option", stored.get("asked"), asked)
            raise SettingsError(
                f"{folder.path} was made with a different {change}: use the same options, or another --out"
            )
        return Choice.read(stored, graph)
    console = Console(stderr=True)
    if settings is None:
        overrides = {name: value for name, value in asked.items() if name not in ("method", "graph")}
        choice = choose(graph, budget=budget, jobs=jobs, overrides=overrides, console=console)
    else:
        choice = cross_validate(graph, settings, jobs=jobs, console=console)
    folder.write(AUTO_FILE, {**choice.as_dict(), "asked": asked})
    return choice


def choose_device(name: str) -> str:
    """Return the torch device for auto, cpu or cuda."""
    if name == "cpu":
        return name
    if name not in ("auto", "cuda"):
        raise SettingsError(f"device must be auto, cpu or cuda, not {name!r}")
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if name == "cuda":
        raise SettingsError("there is no CUDA device: install a CUDA build of torch, or use --device cpu")
    return "cpu"


def show(summary: dict[str, Any], folder: Path) -> None:
    """Print the result as a table."""
    from rich.console import Console
    from rich.table import Table

    from bvat.store.results import cross_validation_text, score_texts
    from bvat.training.stopping import stopping_text
    from bvat.tuning.variants import Variant

    auto = summary.get("auto")
    plain = Variant(summary["settings"]["model"], summary["method"]).title
    name = f"{auto['title']} (chosen by auto)" if auto else plain
    table = Table(title=printable(f"{name} on {summary['dataset']}"), title_justify="left")
    table.add_column("measure")
    table.add_column("value", justify="right")
    for label, text in score_texts(summary).items():
        table.add_row(label, text)
    table.add_row("seeds", str(summary["seeds"]))
    if summary["method"] in BASELINES:
        table.add_row("time per fit", f"{summary['epoch_ms'] / 1000:.2f} s")
    else:
        kept = "last" if summary["settings"]["select"] == "last" else "best"
        table.add_row("epochs", f"{summary['epochs']} (weights of the {kept} one)")
        if summary["stopped"]:
            table.add_row("early stopping", stopping_text(summary["stopped"], summary["seeds"]))
        table.add_row("space", summary["space"])
        table.add_row("time per epoch", f"{summary['epoch_ms']:.2f} ms")
    table.add_row("peak memory", f"{summary['peak_rss_mb']:.0f} MiB")
    table.add_row("validation labels", printable(summary["validation"]))
    console = Console(markup=False)
    console.print(table)
    if summary["f1_classes"]:
        console.print(f1_text(summary), highlight=False)
    for text in summary["events"]:
        console.print(printable(f"note: {text}"), highlight=False)
    if auto:
        console.print(auto["text"], highlight=False)
        console.print(f"Compared by {auto['validation']}:", highlight=False)
        for entry in auto["tried"]:
            console.print(f"  {entry['title']} {_mean(entry['val'])}: {entry['outcome']}", highlight=False)
    if summary["cross_validation"]:
        console.print(cross_validation_text(summary["cross_validation"]), highlight=False)
    console.print(f"run folder: {folder}", highlight=False, soft_wrap=True)


def f1_text(summary: dict[str, Any], most: int = 12) -> str:
    """Return the F1 of each class on one line; of many classes the lowest."""
    scored = [entry for entry in summary["f1_classes"] if entry["mean"] is not None]
    shown = sorted(scored, key=lambda entry: entry["mean"])[:most] if len(scored) > most else scored
    which = f"lowest {most} of {len(scored)} classes" if len(scored) > most else "per class"
    listed = ", ".join(f"{printable(entry['class'])} {entry['mean']:.1f}" for entry in shown)
    return f"F1 in % on the {summary['f1_nodes']} nodes, {which}: {listed}."


def _mean(values: list[float]) -> str:
    return f"{sum(values) / len(values):.1f} %" if values else "-"
