"""The run folder: settings, split, metrics, weights and results of a run, with one subfolder per seed.

settings.json            data set, its classes and number of features, settings, versions
split.npz                train, validation and test nodes
graph.npz                the graph, unless it is one of the paper's
metrics.csv              one line per seed and epoch
result.json              what ``--json`` prints
seed-0/weights.safetensors, metrics.csv, result.json   (checkpoint.safetensors until the seed is finished)

Runs of ``bvat reproduce`` and ``bvat tune`` keep ``settings.json`` and ``seed-*/result.json`` only.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load, save
from torch import Tensor

from bvat._version import __version__
from bvat.data.files import write_atomic, write_csv, write_json
from bvat.data.loading import names
from bvat.data.store import graph_to_bytes, load_graph
from bvat.errors import SettingsError, TrainingError
from bvat.graph import Graph
from bvat.training.callbacks import metric_cell
from bvat.training.loop import METRICS, TrainedModel
from bvat.training.provenance import graph_fingerprint, versions
from bvat.training.scores import summarize_f1
from bvat.training.settings import Settings
from bvat.training.statistics import summarize

GRAPH_FILE = "graph.npz"
"""The graph that was trained on, kept so that predictions do not depend on its original files."""


@dataclass(frozen=True)
class RunFolder:
    """The files of a run: writing and reading them."""

    path: Path

    def seed_path(self, seed: int) -> Path:
        """Return the folder of a seed."""
        return self.path / f"seed-{seed}"

    def checkpoint(self, seed: int) -> Path:
        """Return the checkpoint of a seed, which exists until the seed is finished."""
        return self.seed_path(seed) / "checkpoint.safetensors"

    @property
    def exists(self) -> bool:
        """Whether this is a run folder."""
        return (self.path / "settings.json").is_file()

    def check_new(self, *, resume: bool) -> None:
        """Raise SettingsError unless the folder is new or empty, or holds a run that is to be resumed."""
        if self.exists:
            if not resume:
                raise SettingsError(f"{self.path} already holds a run: use --resume, or another --out")
        elif self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise SettingsError(f"{self.path} exists but is not a run folder: use another --out")

    def start(self, graph: Graph, settings: Settings, *, resume: bool) -> None:
        """Write settings, split and graph; with ``resume``, check that they are those of the folder."""
        self.check_new(resume=resume)
        if self.exists:
            before, now = self.read("settings.json"), _describe(graph, settings)
            for what in ("dataset", "nodes", "validation", "settings", "graph"):
                if before.get(what) != now[what]:
                    change = _difference(what, before.get(what), now[what])
                    raise SettingsError(
                        f"{self.path} was made with a different {change}: use the same options, or another "
                        "--out"
                    )
            return
        splits = io.BytesIO()
        parts = {name: getattr(graph, name).cpu().numpy() for name in ("train", "val", "test")}
        np.savez_compressed(splits, **parts)
        write_atomic(self.path / "split.npz", splits.getvalue())
        if graph.name not in names() or graph.recipe:  # with a recipe, "cora" is a user's own folder
            write_atomic(self.path / GRAPH_FILE, graph_to_bytes(graph))
        self.write_settings(graph, settings)

    def write_settings(self, graph: Graph, settings: Settings, **more: Any) -> None:
        """Write ``settings.json``, which makes this a run folder."""
        write_json(self.path / "settings.json", {**_describe(graph, settings), **more})

    def read(self, name: str) -> dict[str, Any]:
        """Read a JSON file of the folder."""
        try:
            content: dict[str, Any] = json.loads((self.path / name).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise TrainingError(
                f"{self.path / name} cannot be read ({error}): is this a run folder?"
            ) from error
        return content

    def seeds(self) -> tuple[int, ...]:
        """Return the finished seeds in ascending order."""
        folders = [path.parent.name for path in self.path.glob("seed-*/result.json")]
        return tuple(sorted(int(m[1]) for name in folders if (m := re.fullmatch(r"seed-(\d+)", name))))

    def result(self, seed: int, key: str = "") -> dict[str, Any] | None:
        """Return the result of a finished seed, else None.

        A result that cannot be read, or that belongs to another seed or ``key``, counts as missing.
        """
        try:
            stored: dict[str, Any] = json.loads((self.seed_path(seed) / "result.json").read_text("utf-8"))
            return stored if stored["seed"] == seed and (not key or stored["key"] == key) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def weights(self, seed: int) -> dict[str, Tensor]:
        """Return the weights of a seed; OSError or SafetensorError if they cannot be read."""
        return load((self.seed_path(seed) / "weights.safetensors").read_bytes())

    def graph(self) -> Graph | None:
        """Return the graph kept in the folder; None for the paper's, which are loaded by name."""
        path = self.path / GRAPH_FILE
        return load_graph(path) if path.is_file() else None

    def write_model(self, trained: TrainedModel) -> None:
        """Write the weights and metrics of a seed."""
        folder = self.seed_path(trained.seed)
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in trained.weights.items()}
        write_atomic(folder / "weights.safetensors", save(weights, {"version": __version__}))
        write_csv(
            folder / "metrics.csv",
            METRICS,
            ([metric_cell(row[m]) for m in METRICS] for row in trained.metrics),
        )

    def finish(self, seed: int, result: dict[str, Any]) -> None:
        """Write the result of a seed, which marks it as finished, and delete its checkpoint."""
        write_json(self.seed_path(seed) / "result.json", result)
        self.checkpoint(seed).unlink(missing_ok=True)

    def summarize(self, seeds: Iterable[int], summary: dict[str, Any]) -> None:
        """Write ``result.json`` and one ``metrics.csv`` for all seeds."""
        rows: list[list[Any]] = []
        for seed in seeds:
            with (self.seed_path(seed) / "metrics.csv").open(newline="", encoding="utf-8") as file:
                rows += [[seed, *row] for row in list(csv.reader(file))[1:]]
        write_csv(self.path / "metrics.csv", ("seed", *METRICS), rows)
        write_json(self.path / "result.json", summary)


def choose_folder(parent: Path, name: str, *, resume: bool) -> RunFolder:
    """Return a new folder ``name[-n]`` in ``parent``; with ``resume``, the newest one that exists."""
    base = parent / name
    candidates = [base, *[base.with_name(f"{name}-{n}") for n in range(2, 10_000)]]
    position = next(i for i, path in enumerate(candidates) if not path.exists())
    if not resume:
        return RunFolder(candidates[position])
    if position == 0:
        raise SettingsError(f"there is no run to resume at {base}: give its folder with --out")
    return RunFolder(candidates[position - 1])


def seed_result(trained: TrainedModel, peak_rss_mb: float) -> dict[str, Any]:
    """Return the result of one seed as plain values."""
    return {
        "seed": trained.seed,
        "selected": trained.selected,
        "last": trained.last,
        "best": trained.best,
        "space": trained.space,
        "epochs": len(trained.metrics),
        "epoch_ms": trained.epoch_ms,
        "events": trained.events,
        "phases": trained.phases,
        "f1": trained.f1,
        "stopped": trained.stopped,
        "peak_rss_mb": peak_rss_mb,
        "version": __version__,
    }


def summary_of(graph: Graph, settings: Settings, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Combine the results of several seeds: what ``bvat train --json`` prints."""
    times = sorted(result["epoch_ms"] for result in results)
    return {
        "dataset": graph.name,
        "method": settings.method,
        "space": results[0]["space"],
        "seeds": len(results),
        "epochs": max(result["epochs"] for result in results),
        "settings": settings.as_dict(),
        "validation": graph.validation,
        "val_accuracy": summarize([result["selected"]["val"] for result in results]),
        "test_accuracy": summarize([result["selected"]["test"] for result in results]),
        **summarize_f1(graph, results),
        "epoch_ms": times[len(times) // 2],
        "stopped": [
            f"seed {result['seed']} {result['stopped']}" for result in results if result.get("stopped")
        ],
        "events": [
            f"seed {result['seed']}, {text}" for result in results for text in result.get("events", ())
        ],
        "peak_rss_mb": max(result["peak_rss_mb"] for result in results),
        "version": __version__,
    }


def _describe(graph: Graph, settings: Settings) -> dict[str, Any]:
    return {
        "dataset": graph.name,
        "nodes": graph.num_nodes,
        "features": graph.num_features,
        "classes": list(graph.class_names),
        "graph": graph_fingerprint(graph),
        "validation": graph.validation,
        "settings": settings.as_dict(),
        "version": __version__,
        "versions": versions(),
    }


def _difference(what: str, before: Any, now: Any) -> str:
    """Name what differs; for settings, the first one that does."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name, value in now.items():
            if before.get(name) != value:
                return f"setting: {name} was {before.get(name)!r}, now {value!r}"
    return f"{what}: it was {before!r}, now {now!r}"
