"""Training runs and keeping their results, so that nothing is computed twice.

Every run has a :class:`RunFolder`. In ``bvat train`` the user names it. ``bvat reproduce`` and ``bvat tune``
do many runs in a :class:`RunStore`, which finds a folder by a key made from everything the result depends on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bvat.baselines.table import AUTO
from bvat.graph import Graph
from bvat.perturb.methods import METHODS
from bvat.store.claim import run_shared_tasks
from bvat.store.folder import RunFolder
from bvat.store.pool import ReportProgress, run_tasks
from bvat.store.progress import ProgressDisplay
from bvat.store.results import seed_result
from bvat.training.baseline import SHARED
from bvat.training.callbacks import Callback, EpochReporter, NotePrinter
from bvat.training.loop import TrainedModel, train
from bvat.training.memory import peak_mb
from bvat.training.provenance import digest, graph_fingerprint
from bvat.training.settings import Settings
from bvat.training.trackers import TRACKERS

RUN_FORMAT = 2
"""Version of what a run computes and keeps; a new version invalidates the runs of all stores."""


@dataclass(frozen=True)
class Measurement:
    """What a run measures on the trained model, besides the accuracies that every result has.

    Args:
        name: part of the name of the run folder.
        measure: returns plain values to add to the result.
        parameters: returns what else the result depends on; part of the key.
        effort: its time, in epochs of a GCN.
    """

    name: str
    measure: Callable[[Graph, Settings, TrainedModel], dict[str, Any]]
    parameters: Callable[[], Any]
    effort: float = 0.0


@dataclass(frozen=True)
class RunSpec:
    """One seed of one run: data set, settings (which name the method), seed, and what to measure."""

    dataset: str
    settings: Settings
    seed: int
    measurement: Measurement | None = None


@dataclass(frozen=True)
class SeedTrainer:
    """Trains seeds of one run into its folder. It is sent to worker processes.

    ``keep`` is "all", or "result" for neither weights, metrics nor checkpoints; ``key`` identifies the run in
    a store, ``pretrained`` is a folder for what several runs share,
    ``trackers`` are names of what logs every epoch, and ``notes`` prints what is known before the end.
    """

    folder: RunFolder
    graph: Graph
    settings: Settings
    keep: str = "all"
    resume: bool = False
    device: str = "cpu"
    measurement: Measurement | None = None
    key: str = ""
    pretrained: Path | None = None
    trackers: tuple[str, ...] = ()
    notes: bool = False

    def run(self, seed: int, report: ReportProgress) -> dict[str, Any]:
        """Train a seed, report epochs, write the result and return it."""
        started = time.perf_counter()
        graph, leads, all_files = self.graph.to(self.device), self.graph.engine.leads, self.keep == "all"
        callbacks: list[Callback] = [EpochReporter(report), *([NotePrinter()] if self.notes else [])]
        callbacks += [TRACKERS[name](self.folder.seed_path(seed)) for name in self.trackers if leads]
        trained = train(
            graph,
            self.settings,
            seed,
            callbacks=callbacks,
            checkpoint=self.folder.checkpoint(seed) if all_files else None,
            resume=self.resume,
            pretrained=self._kept(seed),
        )
        result = seed_result(trained, peak_mb())
        if self.measurement is not None:
            result |= self.measurement.measure(graph, self.settings, trained)
        result["seconds"] = round(time.perf_counter() - started, 3)
        if self.key:
            result["key"] = self.key
        if leads:
            self.folder.finish(seed, result, trained if all_files else None)
        report(self.settings.epochs)
        return result

    def _kept(self, seed: int) -> Path | None:
        """Return the folder for parts of the training: that of the seed if no other run can use them."""
        return self.folder.seed_path(seed) if self.settings.method == AUTO else self.pretrained


def train_seeds(
    trainer: SeedTrainer,
    seeds: Sequence[int],
    jobs: int,
    progress: Callable[[int, float], None] = lambda seed, epochs: None,
    *,
    finished: Callable[[int, dict[str, Any]], None] = lambda seed, result: None,
    threads: int = 1,
) -> list[dict[str, Any]]:
    """Train all seeds that are not finished, at most ``jobs`` in parallel; return the results of all.

    The numbers of a seed do not depend on how many seeds run in parallel.
    """
    ranks = trainer.graph.engine
    results: dict[int, Any] = ranks.agree(lambda: {seed: trainer.folder.result(seed) for seed in seeds})
    for seed, result in results.items():
        if result is not None:
            progress(seed, trainer.settings.epochs)
            finished(seed, result)
    waiting = [seed for seed in seeds if results[seed] is None]
    advice = "run again with --resume and fewer --jobs"
    made = run_tasks(trainer.run, waiting, jobs, progress, finished=finished, threads=threads, advice=advice)
    results |= dict(zip(waiting, made, strict=True))
    return ranks.agree(lambda: [results[seed] for seed in seeds])


@dataclass(frozen=True)
class RunStore:
    """A folder of runs, found by key, and the graphs they are trained on. It is sent to worker processes."""

    path: Path
    graphs: Mapping[str, Graph]
    fingerprints: Mapping[str, str]

    @classmethod
    def open(cls, path: Path, graphs: Mapping[str, Graph]) -> RunStore:
        return cls(path, dict(graphs), {name: graph_fingerprint(graph) for name, graph in graphs.items()})

    def key(self, spec: RunSpec) -> str:
        """Return the digest of everything the result depends on except the seed."""
        graph, measured = self.fingerprints[spec.dataset], spec.measurement
        what = None if measured is None else [measured.name, measured.parameters()]
        about = {"format": RUN_FORMAT, "measurement": what, "graph": graph}
        return digest({**about, "settings": spec.settings.identity()})

    def folder(self, spec: RunSpec) -> RunFolder:
        """Return the run folder, which the seeds of the same run share."""
        dataset = re.sub(r"[^A-Za-z0-9_.-]+", "_", spec.dataset)
        measured = "accuracy" if spec.measurement is None else spec.measurement.name
        name = f"{spec.settings.method}-{measured}-{self.key(spec)}"
        return RunFolder(self.path / "runs" / dataset / name)

    def result(self, spec: RunSpec) -> dict[str, Any] | None:
        return self.folder(spec).result(spec.seed, self.key(spec))

    def results(self, specs: Iterable[RunSpec]) -> list[dict[str, Any]]:
        return [result for spec in specs if (result := self.result(spec)) is not None]

    def run(self, spec: RunSpec, report: ReportProgress = lambda epochs: None) -> dict[str, Any]:
        if (found := self.result(spec)) is not None:
            return found
        folder, graph, key = self.folder(spec), self.graphs[spec.dataset], self.key(spec)
        if not folder.exists:
            folder.write_settings(graph, spec.settings, keep="result", key=key)
        kept: dict[str, Any] = {"keep": "result", "key": key, "pretrained": self.path / "pretrained"}
        trainer = SeedTrainer(folder, graph, spec.settings, measurement=spec.measurement, **kept)
        return trainer.run(spec.seed, report)

    def lock(self, spec: RunSpec) -> Path:
        return self.folder(spec).path / f".seed-{spec.seed}.lock"

    def run_all(self, specs: Iterable[RunSpec], jobs: int, console: Any = None) -> int:
        """Do all runs that are missing, at most ``jobs`` in parallel; return how many those were.

        Several processes, also of several machines, can work on one store: each takes runs that no other one
        is at, and waits for the rest at the end. The longest runs are started first, so that none of them
        is left at the end, alone on one processor. What baselines share is removed at the end: it is large.
        """
        unique = list({(self.key(spec), spec.seed): spec for spec in specs}.values())
        missing = [spec for spec in unique if self.result(spec) is None]
        efforts = {spec: self._effort(spec) for spec in missing}
        missing.sort(key=lambda spec: -efforts[spec])
        title = f"{len(missing)} runs to do, {len(unique) - len(missing)} already finished"
        with ProgressDisplay(title, efforts, console) as display:

            def advance(spec: RunSpec, epochs: float) -> None:
                display.update(spec, efforts[spec] * min(1.0, epochs / spec.settings.epochs))
                number = min(display.finished + 1, len(missing))
                display.set_title(f"run {number} of {len(missing)}: {spec.settings.method} on {spec.dataset}")

            run_shared_tasks(self.run, missing, self.lock, jobs, advance)
        for path in (self.path / "pretrained").glob(f"{SHARED}*.safetensors"):
            path.unlink(missing_ok=True)
        return len(missing)

    def _effort(self, spec: RunSpec) -> float:
        """Return roughly how long a run takes, in arbitrary units."""
        graph, settings = self.graphs[spec.dataset], spec.settings
        size = graph.features.nnz + 2 * graph.num_edges
        size += graph.num_nodes * (int(getattr(settings, "hidden", 0)) + graph.num_classes)
        measured = 0.0 if spec.measurement is None else spec.measurement.effort
        # in epochs of a GCN; a baseline has one epoch for the whole fit
        epoch = METHODS[settings.method].effort if settings.method in METHODS else 200.0
        return (settings.training.epochs * epoch + measured) * (1e4 + size)
