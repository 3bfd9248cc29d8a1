"""``bvat train``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bvat.cli.graph_options import SplitSeed, Text, TrainPerClass, Val, read_graph
from bvat.cli.options import with_settings
from bvat.errors import SettingsError

if TYPE_CHECKING:
    from rich.progress import Progress

    from bvat.graph import Graph
    from bvat.training.run_folder import RunFolder
    from bvat.training.settings import Settings


@with_settings("epochs", "method", "space")
def train(
    dataset: Annotated[
        str, typer.Argument(help="cora, citeseer, pubmed, nell, or a path to a graph")
    ] = "cora",
    method: Annotated[
        str, typer.Option(help="gcn, consistency, random, vat, sbvat or obvat", show_default=True)
    ] = "obvat",
    seeds: Annotated[int, typer.Option(help="number of runs with different random numbers", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="the first seed", min=0)] = 0,
    epochs: Annotated[int | None, typer.Option(help="number of epochs (default: the preset's)")] = None,
    space: Annotated[
        str | None, typer.Option(help="auto, dense, sparse or factored (default: the preset's)")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    jobs: Annotated[
        int | None, typer.Option(help="processes side by side (default: one a core)", min=1)
    ] = None,
    threads: Annotated[int, typer.Option(help="threads a process", min=1)] = 1,
    out: Annotated[
        Path | None, typer.Option(help="run folder (default: a new one, runs/DATASET-METHOD)")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with an unfinished run")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")] = False,
    report: Annotated[bool, typer.Option(help="write a page, report.html, into the run folder")] = True,
    text: Text = None,
    train_per_class: TrainPerClass = None,
    val: Val = None,
    split_seed: SplitSeed = 0,
    *,
    overrides: dict[str, Any],
) -> None:
    """Train on a data set, print a table, and write a run folder.

    Settings that are not given come from the preset of the data set and method. Ctrl-C or a crash loses at
    most the epochs since the last checkpoint: run the same command with --resume.

    Examples:

      bvat train

      bvat train citeseer --method sbvat --seeds 10

      bvat train pubmed --method obvat --alpha 0.5 --json
    """
    from rich.console import Console

    from bvat.training.run_folder import RunFolder, summary_of
    from bvat.training.seeds import Job, train_seeds
    from bvat.training.settings import preset, preset_key, short_name

    named = {"epochs": epochs, "space": space}
    overrides |= {name: value for name, value in named.items() if value is not None}
    settings = preset(preset_key(dataset), method, **overrides)
    chosen_device = choose_device(device)
    graph = read_graph(dataset, text, train_per_class, val, split_seed)
    folder = RunFolder(run_path(out, short_name(dataset), method, resume=resume))
    folder.start(graph, settings, resume=resume)
    job = Job(graph, settings, folder, resume, threads, chosen_device)
    numbers = list(range(seed, seed + seeds))
    console = Console(stderr=True)
    with seed_progress(console) as bar:
        tasks = {k: bar.add_task(f"seed {k}", total=settings.epochs, visible=False) for k in numbers}
        whole = bar.add_task(f"{method} on {graph.name}", total=seeds * settings.epochs)

        def advance(k: int, epoch: int) -> None:
            bar.update(tasks[k], completed=epoch, visible=0 < epoch < settings.epochs)
            bar.update(whole, completed=sum(bar.tasks[t].completed for t in tasks.values()))

        results = train_seeds(job, numbers, jobs or min(seeds, os.cpu_count() or 1), advance)
    summary = summary_of(graph, settings, results)
    folder.summarise(numbers, summary)
    if report:
        reader = {
            "text": text,
            "train_per_class": train_per_class,
            "val": val,
            "split_seed": split_seed or None,
        }
        write_page(folder, graph, settings, numbers, summary, dataset, {**overrides, **reader})
    if as_json:
        typer.echo(json.dumps(summary))
    else:
        show(summary, folder.path)


def write_page(
    folder: RunFolder,
    graph: Graph,
    settings: Settings,
    seeds: list[int],
    summary: dict[str, Any],
    dataset: str,
    options: dict[str, Any],
) -> None:
    """Write the page of a run; whatever is wrong with it, the trained model is not lost."""
    try:
        from bvat.report.run_page import train_command, write_run_page

        command = train_command(dataset, settings.method, seeds, options)
        write_run_page(folder, graph, settings, seeds, summary, command)
    except Exception as error:
        typer.echo(f"note: the page was not written ({type(error).__name__}: {error})", err=True)


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
        raise SettingsError("device cuda is not there: install a CUDA build of torch, or use --device cpu")
    return "cpu"


def run_path(out: Path | None, dataset: str, method: str, *, resume: bool) -> Path:
    """Return the folder asked for, or a new runs/DATASET-METHOD[-n] (with --resume the newest there is)."""
    if out is not None:
        return out
    base = Path("runs") / f"{dataset}-{method}"
    candidates = [base, *[base.with_name(f"{base.name}-{n}") for n in range(2, 10_000)]]
    free = next(path for path in candidates if not path.exists())
    if not resume:
        return free
    position = candidates.index(free)
    if position == 0:
        raise SettingsError(f"there is no run to resume at {base}: give its folder with --out")
    return candidates[position - 1]


def seed_progress(console: Any) -> Progress:
    """Return the progress display: a bar for each running seed and one for the whole."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )


def show(summary: dict[str, Any], folder: Path) -> None:
    """Print the result as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{summary['method']} on {summary['dataset']}", title_justify="left")
    table.add_column("measure")
    table.add_column("value", justify="right")
    for label, name in (("validation accuracy", "val_accuracy"), ("test accuracy", "test_accuracy")):
        part = summary[name]
        table.add_row(label, "-" if part["mean"] is None else f"{part['mean']:.2f} ± {part['std']:.2f} %")
    table.add_row("seeds", str(summary["seeds"]))
    table.add_row("epochs", f"{summary['epochs']} ({summary['settings']['select']} kept)")
    table.add_row("space", summary["space"])
    table.add_row("time an epoch", f"{summary['epoch_ms']:.2f} ms")
    table.add_row("peak memory", f"{summary['peak_rss_mb']:.0f} MiB")
    table.add_row("validation labels", summary["validation"])
    console = Console()
    console.print(table)
    console.print(f"run folder: {folder}", highlight=False, soft_wrap=True)
