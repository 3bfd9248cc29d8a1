"""Several seeds of one run side by side, one process each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bvat.graph import Graph
from bvat.training.loop import train
from bvat.training.memory import peak_mb
from bvat.training.pool import Report, run_tasks, thread_count
from bvat.training.run_folder import RunFolder
from bvat.training.settings import Settings

REPORT_EVERY = 10
"""Epochs between two messages about progress."""

Progress = Callable[[int, int], None]
"""Called with a seed and the number of its epochs that are done."""


@dataclass(frozen=True)
class Job:
    """What a process needs to train seeds of one run."""

    graph: Graph
    settings: Settings
    folder: RunFolder
    resume: bool
    threads: int
    device: str


def train_seed(job: Job, seed: int, progress: Progress) -> dict[str, Any]:
    """Train one seed, write its part of the run folder and return its result."""
    done = job.folder.finished(seed)
    if done is not None:
        progress(seed, job.settings.epochs)
        return done

    def report(row: dict[str, float]) -> None:
        if row["epoch"] % REPORT_EVERY == 0:
            progress(seed, int(row["epoch"]))

    with thread_count(job.threads):
        trained = train(
            job.graph.to(job.device),
            job.settings,
            seed,
            checkpoint=job.folder.checkpoint(seed),
            resume=job.resume,
            on_epoch=report,
        )
    progress(seed, job.settings.epochs)
    return job.folder.finish(trained, peak_mb())


def train_seeds(job: Job, seeds: list[int], jobs: int, progress: Progress) -> list[dict[str, Any]]:
    """Train all seeds, at most ``jobs`` at a time; results are in the order of ``seeds``.

    Each seed's numbers depend on the seed only, not on how many run side by side.
    """
    waiting = [seed for seed in seeds if job.folder.finished(seed) is None]
    for seed in set(seeds) - set(waiting):
        progress(seed, job.settings.epochs)
    run_tasks(
        functools.partial(_train_task, job),
        waiting,
        jobs,
        lambda seed, epoch: progress(seed, int(epoch)),
        threads=job.threads,
        advice="run again with --resume and fewer --jobs",
    )
    return [result for seed in seeds if (result := job.folder.finished(seed)) is not None]


def _train_task(job: Job, seed: int, report: Report) -> None:
    train_seed(job, seed, lambda _, epoch: report(epoch))
