"""Doing runs: those that are missing, side by side, with one progress display."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bvat.perturb.methods import METHODS
from bvat.training.pool import Report, run_tasks
from bvat.training.runs import Run, Workshop


def perform(workshop: Workshop, runs: Iterable[Run], jobs: int, console: Any = None) -> int:
    """Do all runs that are missing, at most ``jobs`` at a time, and return how many those were.

    Args:
        workshop: where results and graphs are.
        runs: in the order in which they are started; repeated ones are done once.
        jobs: number of processes, of one thread each.
        console: where progress is shown; None for nowhere.
    """
    unique = {workshop.key(run): run for run in runs}
    missing = {key: run for key, run in unique.items() if workshop.result(run) is None}
    efforts = {key: effort(workshop, run) for key, run in missing.items()}
    with progress_bar(console) as bar:
        whole = bar.add_task(
            f"{len(missing)} runs, {len(unique) - len(missing)} found finished",
            total=sum(efforts.values()) or 1,
        )
        done = dict.fromkeys(missing, 0.0)

        def advance(task: tuple[str, Run], epochs: float) -> None:
            key, run = task
            done[key] = efforts[key] * min(1.0, epochs / run.settings.epochs)
            finished = sum(done[k] == efforts[k] for k in done)
            bar.update(
                whole,
                completed=sum(done.values()),
                description=f"run {min(finished + 1, len(missing))} of {len(missing)}: "
                f"{run.settings.method} on {run.dataset}",
            )

        run_tasks(_Work(workshop), list(missing.items()), jobs, advance)
    return len(missing)


class _Work:
    """What a process does with a task: a class, because it travels to the process with its workshop."""

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop

    def __call__(self, task: tuple[str, Run], report: Report) -> None:
        self.workshop.do(task[1], report)


def effort(workshop: Workshop, run: Run) -> float:
    """Return how much work a run is, in arbitrary units."""
    graph = workshop.graphs[run.dataset]
    size = (
        graph.features.nnz + 2 * graph.num_edges + graph.num_nodes * (run.settings.hidden + graph.num_classes)
    )
    extra = 100 if run.kind == "curves" else 0  # epochs' worth of measuring
    return (run.settings.epochs * METHODS[run.settings.method].effort + extra) * (1e4 + size)


def progress_bar(console: Any) -> Any:
    """Return the progress display: one bar, and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console or Console(quiet=True),
        transient=True,
        speed_estimate_period=600,
    )
