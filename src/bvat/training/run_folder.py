"""The run folder: settings, split, metrics, weights and result of a run, one subfolder a seed.

settings.json            data set, its classes and number of features, settings, version
split.npz                train, val and test nodes
graph.npz                the graph, unless it is one of the paper's
metrics.csv              one line an epoch and seed
result.json              what ``--json`` prints
seed-0/weights.safetensors, result.json   (checkpoint.safetensors while it is running)
"""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import save

from bvat._version import __version__
from bvat.data.files import write_atomic, write_json
from bvat.data.loading import names
from bvat.data.store import graph_to_bytes
from bvat.errors import SettingsError, TrainingError
from bvat.graph import Graph
from bvat.training.checkpoint import graph_fingerprint
from bvat.training.loop import METRICS, TrainedModel
from bvat.training.settings import Settings

GRAPH_FILE = "graph.npz"
"""The graph that was trained on, kept so that it can be predicted whatever becomes of its own files."""


@dataclass(frozen=True)
class RunFolder:
    """Paths of a run folder and what is in them."""

    path: Path

    def seed_path(self, seed: int) -> Path:
        """Return the folder of one seed."""
        return self.path / f"seed-{seed}"

    def checkpoint(self, seed: int) -> Path:
        """Return the checkpoint of one seed; it is there only while the seed is not finished."""
        return self.seed_path(seed) / "checkpoint.safetensors"

    def start(self, graph: Graph, settings: Settings, *, resume: bool) -> None:
        """Write settings and split; refuse to mix runs."""
        about = {
            "dataset": graph.name,
            "nodes": graph.num_nodes,
            "features": graph.num_features,
            "classes": list(graph.class_names),
            "graph": graph_fingerprint(graph),
            "validation": graph.validation,
            "settings": settings.as_dict(),
            "version": __version__,
        }
        if (self.path / "settings.json").exists():
            if not resume:
                raise SettingsError(f"{self.path} holds a run already: use --resume, or another --out")
            before = self.read("settings.json")
            for what in ("dataset", "nodes", "validation", "settings"):
                if before.get(what) != about[what]:
                    other = _difference(what, before.get(what), about[what])
                    raise SettingsError(
                        f"{self.path} was made with another {other}: use the same options, or another --out"
                    )
            return
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise SettingsError(f"{self.path} is there and is not a run folder: use another --out")
        splits = io.BytesIO()
        np.savez_compressed(
            splits,
            train=graph.train.cpu().numpy(),
            val=graph.val.cpu().numpy(),
            test=graph.test.cpu().numpy(),
        )
        write_atomic(self.path / "split.npz", splits.getvalue())
        if graph.name not in names() or graph.recipe:  # a reader's recipe: a folder that is called cora
            write_atomic(self.path / GRAPH_FILE, graph_to_bytes(graph))
        write_json(self.path / "settings.json", about)

    def read(self, name: str) -> dict[str, Any]:
        """Read a JSON file of the folder."""
        try:
            content: dict[str, Any] = json.loads((self.path / name).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise TrainingError(
                f"{self.path / name} cannot be read ({error}): is this a run folder?"
            ) from error
        return content

    def finished(self, seed: int) -> dict[str, Any] | None:
        """Return the result of a seed that has finished, else None."""
        name = f"{self.seed_path(seed).name}/result.json"
        return self.read(name) if (self.path / name).exists() else None

    def finish(self, trained: TrainedModel, peak_rss_mb: float) -> dict[str, Any]:
        """Write the weights, metrics and result of a seed, the result last, and drop its checkpoint."""
        folder = self.seed_path(trained.seed)
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in trained.weights.items()}
        write_atomic(folder / "weights.safetensors", save(weights, {"version": __version__}))
        write_atomic(
            folder / "metrics.csv", _csv(METRICS, ([row[m] for m in METRICS] for row in trained.metrics))
        )
        result = seed_result(trained, peak_rss_mb)
        write_json(folder / "result.json", result)
        self.checkpoint(trained.seed).unlink(missing_ok=True)
        return result

    def summarise(self, seeds: list[int], summary: dict[str, Any]) -> None:
        """Write ``result.json`` and one ``metrics.csv`` for all seeds."""
        rows: list[list[str]] = []
        for seed in seeds:
            with (self.seed_path(seed) / "metrics.csv").open(newline="", encoding="utf-8") as file:
                rows += [[str(seed), *row] for row in list(csv.reader(file))[1:]]
        write_atomic(self.path / "metrics.csv", _csv(("seed", *METRICS), rows))
        write_json(self.path / "result.json", summary)


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
        "peak_rss_mb": peak_rss_mb,
        "version": __version__,
    }


def spread(values: list[float | None]) -> dict[str, Any]:
    """Return mean, sample standard deviation and the values; None where there are no nodes to measure on."""
    known = [value for value in values if value is not None]
    if not known:
        return {"mean": None, "std": None, "values": values}
    mean = sum(known) / len(known)
    std = math.sqrt(sum((v - mean) ** 2 for v in known) / (len(known) - 1)) if len(known) > 1 else 0.0
    return {"mean": mean, "std": std, "values": values}


def summary_of(graph: Graph, settings: Settings, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Put the results of several seeds together: what ``bvat train --json`` prints."""
    times = sorted(result["epoch_ms"] for result in results)
    return {
        "dataset": graph.name,
        "method": settings.method,
        "space": results[0]["space"],
        "seeds": len(results),
        "epochs": max(result["epochs"] for result in results),
        "settings": settings.as_dict(),
        "validation": graph.validation,
        "val_accuracy": spread([result["selected"]["val"] for result in results]),
        "test_accuracy": spread([result["selected"]["test"] for result in results]),
        "epoch_ms": times[len(times) // 2],
        "peak_rss_mb": max(result["peak_rss_mb"] for result in results),
        "version": __version__,
    }


def _difference(what: str, before: Any, now: Any) -> str:
    """Name what differs, for settings the first one that does."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name, value in now.items():
            if before.get(name) != value:
                return f"setting: {name} was {before.get(name)!r}, now {value!r}"
    return f"{what}: it was {before!r}, now {now!r}"


def _csv(header: tuple[str, ...], rows: Any) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_plain(value) for value in row] for row in rows)
    return text.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else (int(value) if value.is_integer() and abs(value) < 1e9 else value)
    return value
