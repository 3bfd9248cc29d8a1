"""Several seeds side by side, one process each, with one thread a process unless asked otherwise."""

from __future__ import annotations

import contextlib
import os
import queue
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.multiprocessing as mp

from bvat.errors import BvatError, TrainingError
from bvat.graph import Graph
from bvat.training.loop import train
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


def peak_rss_mb() -> float:
    """Return the most memory this process has used, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


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
    return job.folder.finish(trained, peak_rss_mb())


def train_seeds(job: Job, seeds: list[int], jobs: int, progress: Progress) -> list[dict[str, Any]]:
    """Train all seeds, at most ``jobs`` at a time; results are in the order of ``seeds``.

    Each seed's numbers depend on the seed only, not on how many run side by side.
    """
    waiting = [seed for seed in seeds if job.folder.finished(seed) is None]
    for seed in set(seeds) - set(waiting):
        progress(seed, job.settings.epochs)
    if jobs <= 1 or len(waiting) <= 1:
        for seed in waiting:
            train_seed(job, seed, progress)
    else:
        _train_in_processes(job, waiting, min(jobs, len(waiting)), progress)
    return [result for seed in seeds if (result := job.folder.finished(seed)) is not None]


def _train_in_processes(job: Job, seeds: list[int], jobs: int, progress: Progress) -> None:
    context = mp.get_context("spawn")
    tasks, events = context.Queue(), context.Queue()
    for seed in seeds:
        tasks.put(seed)
    for _ in range(jobs):
        tasks.put(None)
    workers = [
        context.Process(target=_work, args=(job, tasks, events, os.getpid()), daemon=True)
        for _ in range(jobs)
    ]
    for worker in workers:
        worker.start()
    try:
        remaining = set(seeds)
        while remaining:
            try:
                kind, seed, content = events.get(timeout=0.5)
            except queue.Empty:
                dead = [worker for worker in workers if worker.exitcode not in (None, 0)]
                if dead:
                    raise TrainingError(
                        f"a training process ended with code {dead[0].exitcode} (out of memory?): "
                        "run again with --resume and fewer --jobs"
                    ) from None
                continue
            if kind == "progress":
                progress(seed, content)
            elif kind == "done":
                remaining.discard(seed)
            elif kind == "user error":
                raise TrainingError(content)
            else:
                raise RuntimeError(f"training of seed {seed} failed:\n{content}")
        for worker in workers:
            worker.join()
    finally:
        for worker in workers:
            worker.terminate()


def _work(job: Job, tasks: Any, events: Any, parent: int) -> None:
    """Train seeds from the queue until it says None; end when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, _interrupt)  # save a checkpoint before ending
    torch.set_num_threads(job.threads)

    def report(seed: int, epoch: int) -> None:
        if os.getppid() != parent:
            os._exit(1)
        events.put(("progress", seed, epoch))

    try:
        while (seed := tasks.get()) is not None:
            try:
                train_seed(job, seed, report)
                events.put(("done", seed, None))
            except BvatError as error:
                events.put(("user error", seed, str(error)))
            except Exception:
                events.put(("error", seed, traceback.format_exc()))
    except KeyboardInterrupt:
        pass


def _interrupt(*_: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextlib.contextmanager
def thread_count(threads: int) -> Iterator[None]:
    """Compute with so many threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
