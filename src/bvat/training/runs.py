"""Runs: one model trained and measured, with one result file each, so that nothing is done twice.

A run is known by a key made of everything its result depends on. A result file is written whole or not at
all; a file that cannot be read, or that has another key, counts as missing.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bvat._version import __version__
from bvat.data.files import write_json
from bvat.graph import Graph
from bvat.training.checkpoint import graph_fingerprint
from bvat.training.loop import TrainedModel, train
from bvat.training.pool import Report
from bvat.training.settings import Settings

FORMAT = 1
"""Version of result files and of what is measured; a new one makes all runs be done again."""
RESULT_FORMAT = 1
"""Version of the files of tables and figures, which the page is made from."""
REPORT_EVERY = 10
"""Epochs between two messages about progress."""


@dataclass(frozen=True)
class Run:
    """A data set, settings (which name the method), a seed, and what is to be measured."""

    dataset: str
    settings: Settings
    seed: int
    kind: str = "accuracy"


@dataclass(frozen=True)
class Kind:
    """What a run measures: a function of graph, run and trained model, and what else its key depends on."""

    measure: Callable[[Graph, Run, TrainedModel], dict[str, Any]]
    about: Callable[[], Any]


def accuracies(graph: Graph, run: Run, trained: TrainedModel) -> dict[str, Any]:
    """Return the accuracy of both selections, and the time of an epoch."""
    return {"last": trained.last, "best": trained.best, "epoch_ms": trained.epoch_ms, "space": trained.space}


def kinds() -> dict[str, Kind]:
    """Return all kinds of runs."""
    from bvat.paper.robustness import measure_curves, probes

    return {"accuracy": Kind(accuracies, dict), "curves": Kind(measure_curves, probes)}


@dataclass(frozen=True)
class Workshop:
    """A folder of results and the graphs that runs work on; it travels to the processes that do the work."""

    folder: Path
    graphs: Mapping[str, Graph]
    fingerprints: Mapping[str, str]

    @classmethod
    def open(cls, folder: Path, graphs: Mapping[str, Graph]) -> Workshop:
        """Return the workshop of a folder."""
        return cls(folder, dict(graphs), {name: graph_fingerprint(graph) for name, graph in graphs.items()})

    def key(self, run: Run) -> str:
        """Return what names a run: a digest of all that its result depends on."""
        content = {
            "format": FORMAT,
            "kind": run.kind,
            "about": kinds()[run.kind].about(),
            "graph": self.fingerprints[run.dataset],
            "settings": run.settings.as_dict(),
            "seed": run.seed,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:20]

    def path(self, run: Run) -> Path:
        """Return the result file of a run."""
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", run.dataset)
        return (
            self.folder / "runs" / name / f"{run.settings.method}-{run.kind}-{run.seed}-{self.key(run)}.json"
        )

    def result(self, run: Run) -> dict[str, Any] | None:
        """Return the result of a finished run, else None."""
        try:
            stored = json.loads(self.path(run).read_text("utf-8"))
            result: dict[str, Any] = stored["result"]
            return result if stored["key"] == self.key(run) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def do(self, run: Run, report: Report) -> dict[str, Any]:
        """Do a run unless it is finished; return its result."""
        done = self.result(run)
        if done is not None:
            report(run.settings.epochs)
            return done

        def on_epoch(row: dict[str, float]) -> None:
            if row["epoch"] % REPORT_EVERY == 0:
                report(row["epoch"])

        started = time.perf_counter()
        graph = self.graphs[run.dataset]
        trained = train(graph, run.settings, run.seed, on_epoch=on_epoch)
        result = kinds()[run.kind].measure(graph, run, trained)
        content = {
            "key": self.key(run),
            "dataset": run.dataset,
            "method": run.settings.method,
            "kind": run.kind,
            "seed": run.seed,
            "result": result,
            "settings": run.settings.as_dict(),
            "seconds": round(time.perf_counter() - started, 3),
            "versions": versions(),
        }
        write_json(self.path(run), content)
        report(run.settings.epochs)
        return result


@cache
def versions() -> dict[str, str]:
    """Return the versions of all that numbers depend on."""
    from importlib.metadata import version

    found = {name: version(name) for name in ("torch", "numpy", "scipy")}
    return {
        "bvat": __version__,
        "python": platform.python_version(),
        **found,
        "platform": f"{platform.system()} {platform.machine()}",
    }
