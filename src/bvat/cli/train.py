"""``bvat train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from bvat.baselines.table import AUTO, all_methods
from bvat.cli import common
from bvat.cli.common import COUNT, PROCESSES, SEED, Device, Jobs, Json
from bvat.cli.options import given_settings, with_settings
from bvat.cli.runs import show_summary


@with_settings
@common.with_graph_options
def train(
    context: typer.Context,
    dataset: Annotated[
        str, Argument(help="cora, citeseer, pubmed, nell, or a path to a graph or its parts")
    ] = "cora",
    method: Annotated[
        str | None,
        Option(
            help=f"auto (the default on your own graph), {', '.join(m for m in all_methods() if m != AUTO)}",
            metavar="NAME",
            autocompletion=lambda: list(all_methods()),
        ),
    ] = None,
    seeds: Annotated[int, Option(help="number of seeds to train", **COUNT)] = 1,
    seed: Annotated[int, Option(help="the first seed", **SEED)] = 0,
    jobs: Jobs = None,
    out: Annotated[Path | None, Option(help="run folder (default: runs/DATASET-METHOD)")] = None,
    resume: Annotated[bool, Option("--resume", help="continue an unfinished run")] = False,
    as_json: Json = False,
    report: Annotated[bool, Option("--report/--no-report", hidden=True)] = True,
    device: Device = None,
    threads: Annotated[
        int, Option(help="per process; more than one changes rounding", hidden=True, **PROCESSES)
    ] = 1,
    tensorboard: Annotated[bool, Option("--tensorboard", hidden=True)] = False,
    mlflow: Annotated[bool, Option("--mlflow", hidden=True)] = False,
    wandb: Annotated[bool, Option("--wandb", hidden=True)] = False,
    rank_timeout: Annotated[
        float, Option(help="seconds to wait for another rank", metavar="SECONDS", hidden=True)
    ] = 600.0,
    batch_parts: Annotated[
        int | None, Option(help="parts at a time, without edges to others", metavar="N", hidden=True)
    ] = None,
    *,
    reading: dict[str, Any],
    overrides: dict[str, Any],
) -> None:
    """Train on a data set, print a table, and write a run folder.

    On your own graph, auto is an ensemble of linear classifiers and networks on
    the given edges and on similar nodes; --effort 1 to 4 says how much work it
    may be. Without a split all labelled nodes are training nodes, and
    cross-validation says how accurate the model is; --test N holds some
    out. Ctrl-C, SIGTERM and SIGHUP save a checkpoint; --resume continues.

    All settings that bvat settings lists are options, such as --heads 4; those
    that are not given come from the preset of the data set and method, or from
    the defaults for any graph. Further options: --device cpu|cuda, --threads N,
    --no-report, --tensorboard, --mlflow, --wandb, --space NAME, and for
    folders of parts --rank-timeout SECONDS and --batch-parts N.

    Examples:

      bvat train citeseer --method sbvat --seeds 10

      bvat train my-graph/ --effort 3 --neighbours both

      torchrun --nproc-per-node 4 -m bvat train parts/ --method obvat
    """
    from bvat.engine.cpu import choose_device
    from bvat.runs.parts import join_parts, name_of_parts, resumes
    from bvat.runs.run import RunOptions, resolve, run
    from bvat.training.settings import Settings, preset_key, short_name

    method, overrides = given_settings(method, overrides)
    name, resume = name_of_parts(dataset, method), resumes(resume, out)
    settings = Settings()
    if method or preset_key(name):  # else the labels decide; wrong values are refused before a graph is read
        settings, _ = resolve(method, name, overrides)
    choose_device(device)
    trackers = {"tensorboard": tensorboard, "mlflow": mlflow, "wandb": wandb}
    options = RunOptions(
        name=short_name(name),
        threads=threads,
        device=device,
        trackers=[name for name, on in trackers.items() if on],
        page=report,
        command=common.command_line(context, "out"),
        console=common.messages(),
    )
    same = {"seed": seed, "seeds": seeds, "resume": resume}
    graph = join_parts(dataset, settings, rank_timeout, batch_parts, **same)
    graph = graph or common.read_graph(name, reading)
    settings, _ = resolve(method, name, overrides, graph.targets)
    jobs, numbers = common.processes(jobs), range(seed, seed + seeds)
    done = run(graph, settings, folder=out, seeds=numbers, jobs=jobs, resume=resume, options=options)
    if not graph.engine.leads:
        return
    if as_json:
        common.print_json({**done.summary, "run": str(done.path)})
    else:
        show_summary(done.summary, done.path)
