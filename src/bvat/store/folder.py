"""The run folder: settings, split, metrics, weights and results of a run, with one subfolder per seed.

settings.json            data set, its classes and number of features, settings, versions
split.npz                train, validation and test nodes
graph.npz                the graph, unless it is one of the paper's
metrics.csv              one line per seed and epoch
result.json              what ``--json`` prints
seed-0/weights.safetensors, metrics.csv, result.json   (until the seed is finished checkpoint.safetensors,
                         or shared-*.safetensors: the networks of auto)

Runs of ``bvat reproduce`` and ``bvat tune`` keep ``settings.json`` and ``seed-*/result.json`` only.

JSON files contain their own checksum. Those of the split and the graph are in ``settings.json``, and those of
the weights and metrics of a seed in its ``result.json``.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from bvat._version import __version__
from bvat.data.checksums import read_sealed_json, sha256, write_sealed_json
from bvat.data.files import csv_text, read_regular, write_atomic
from bvat.data.loading import names
from bvat.data.store import graph_to_bytes, load_graph
from bvat.errors import DataError, SettingsError, TrainingError
from bvat.graph import Graph
from bvat.parts.folder import whole_graph
from bvat.store.claim import LOCK
from bvat.store.results import is_result
from bvat.training.baseline import SHARED
from bvat.training.provenance import digest, graph_fingerprint, versions
from bvat.training.settings import Settings
from bvat.training.trained import METRICS, TrainedModel

T = TypeVar("T")

GRAPH_FILE = "graph.npz"
"""The graph that was trained on, kept so that predictions do not depend on its original files."""
WEIGHTS, CURVES = "weights.safetensors", "metrics.csv"
"""The files of a seed whose checksums are in its result."""
SPLITS = ("train", "val", "test")
AUTO_FILE = "auto.json"
"""What a cross-validation chose: the first file of such a run."""


@dataclass(frozen=True)
class RunFolder:
    """The files of a run: writing and reading them."""

    path: Path

    def seed_path(self, seed: int) -> Path:
        return self.path / f"seed-{seed}"

    def checkpoint(self, seed: int) -> Path:
        return self.seed_path(seed) / "checkpoint.safetensors"

    @property
    def exists(self) -> bool:
        return (self.path / "settings.json").is_file()

    def check_new(self, *, resume: bool) -> None:
        """Raise SettingsError unless the folder is new or empty, or holds a run that is to be resumed."""
        found = {path.name for path in self.path.iterdir()} - {LOCK} if self.path.is_dir() else set()
        if found & {"settings.json", AUTO_FILE}:
            if not resume:
                raise SettingsError(f"{self.path} already holds a run: use --resume, or another --out")
        elif found or (self.path.exists() and not self.path.is_dir()):
            raise SettingsError(f"{self.path} exists but is not a run folder: use another --out")

    def start(self, graph: Graph, settings: Settings, *, resume: bool) -> None:
        """Write settings, split and graph; with ``resume``, check that they are those of the folder.

        Raises:
            SettingsError: the folder holds another run.
            DataError: its split or graph is damaged.
        """
        self.check_new(resume=resume)
        about = _describe(graph, settings)
        before = self._same_run(about) if self.exists else about
        if parts := graph_parts(graph):
            if "parts" not in before:
                self.write("settings.json", {**before, "parts": parts})
            return
        if not isinstance(before.get("files", {}), dict):
            raise DataError(
                f"{self.path / 'settings.json'} is damaged (it lists no files): use another --out"
            )
        sums, missing = dict(before.get("files", {})), _files_of(graph)
        for name in sums.keys() & {name for name in missing if (self.path / name).exists()}:
            if sha256(read_regular(self.path / name)) != sums[name]:
                raise DataError(
                    f"{self.path / name} is damaged (its checksum is not the one in settings.json): delete "
                    "it, and --resume writes it again"
                )
            del missing[name]
        if missing:  # other versions of numpy and zlib may write other bytes for the same graph
            sums |= {name: sha256(data) for name, data in missing.items()}
            self.write("settings.json", {**before, "files": sums})
        for name, data in missing.items():  # also if the process was killed before it wrote them
            write_atomic(self.path / name, data)

    def _same_run(self, now: dict[str, Any]) -> dict[str, Any]:
        before = self.read("settings.json")
        if before.get("version") != __version__:
            raise SettingsError(
                f"{self.path} was made with bvat {before.get('version')}, not {__version__}: continue it "
                "with that version, or use another --out"
            )
        for what in ("dataset", "nodes", "validation", "settings", "graph"):
            self.check_same(what, before.get(what), now[what])
        return before

    def check_same(self, what: str, before: Any, now: Any) -> None:
        if before != now:
            raise SettingsError(
                f"{self.path} was made with a different {_difference(what, before, now)}: use the same "
                "options, or another --out"
            )

    def write_settings(self, graph: Graph, settings: Settings, **more: Any) -> None:
        """Write ``settings.json``, which makes this a run folder."""
        self.write("settings.json", {**_describe(graph, settings), **more})

    def write(self, name: str, content: dict[str, Any]) -> None:
        write_sealed_json(self.path / name, content)

    def read(self, name: str) -> dict[str, Any]:
        try:
            return read_sealed_json(self.path / name)
        except (OSError, ValueError) as error:
            raise TrainingError(
                f"{self.path / name} cannot be read ({error}): is this a run folder?"
            ) from error

    def seeds(self) -> tuple[int, ...]:
        """Return the finished seeds in ascending order, also those whose files are damaged."""
        return tuple(seed for seed in self.started() if (self.seed_path(seed) / "result.json").exists())

    def started(self) -> tuple[int, ...]:
        """Return the seeds that have a folder in ascending order; ``seed-00`` is none."""
        names = [path.name.removeprefix("seed-") for path in self.path.glob("seed-*/")]
        return tuple(sorted(int(name) for name in names if re.fullmatch("0|[1-9][0-9]*", name)))

    def result(self, seed: int, key: str = "") -> dict[str, Any] | None:
        """Return the result of a finished seed, else None.

        A result that cannot be read, or that belongs to another seed or ``key``, or whose weights and metrics
        are damaged, counts as missing.
        """
        with suppress(DataError):
            stored = self.checked_result(seed)
            return None if key and stored.get("key") != key else stored
        return None

    def checked_result(self, seed: int) -> dict[str, Any]:
        """Return the result of a finished seed; DataError if its files are damaged or of another seed."""
        try:
            stored = self._stored(seed)
            for name in stored.get("files", {}):
                self._checked(seed, name, stored)
            return stored
        except (OSError, ValueError, DataError) as error:
            raise DataError(
                f"{self.seed_path(seed)} is damaged and not counted ({error}): train this seed again with "
                "--resume, or delete the folder"
            ) from None

    def _stored(self, seed: int) -> dict[str, Any]:
        """Return the content of ``result.json`` of a seed; ValueError if it is damaged or of another seed."""
        try:
            stored = read_sealed_json(self.seed_path(seed) / "result.json")
        except ValueError as error:
            raise ValueError(f"result.json: {error}") from None
        if stored.get("seed") != seed:
            raise ValueError(f"result.json: it belongs to seed {stored.get('seed')}, the folder is a copy")
        if not is_result(stored, seed):
            raise ValueError("result.json: it is not the result of a run")
        if (run := self._identity()) is not None and stored.get("identity") != run:
            raise ValueError("result.json: it belongs to a run on another graph or with other settings")
        return stored

    def _identity(self) -> str | None:
        """Return what the results of this run have in common; None if the run is not described."""
        try:
            about = read_sealed_json(self.path / "settings.json")
            return digest([about["graph"], about["settings"]])
        except (OSError, ValueError, KeyError, DataError):
            return None

    def weights(self, seed: int) -> dict[str, Tensor]:
        """Return the weights of a finished seed; DataError if they cannot be read or are damaged."""
        return self._parsed(seed, WEIGHTS, load)

    def curves(self, seed: int) -> list[list[str]]:
        """Return the rows of the metrics of a finished seed; DataError if they are damaged."""
        return self._parsed(seed, CURVES, lambda data: list(csv.reader(data.decode().splitlines())))

    def _parsed(self, seed: int, name: str, parse: Callable[[bytes], T]) -> T:
        try:
            return parse(self._checked(seed, name, self._stored(seed)))
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError, csv.Error) as error:
            raise DataError(
                f"{self.seed_path(seed) / name} cannot be read ({error}): delete {self.seed_path(seed)} and "
                "train this seed again with --resume"
            ) from None

    def _checked(self, seed: int, name: str, result: dict[str, Any]) -> bytes:
        content = read_regular(self.seed_path(seed) / name)
        if sha256(content) != result.get("files", {}).get(name):
            raise ValueError(f"{name} does not have the checksum in result.json")
        return content

    def graph(self) -> Graph | None:
        """Return the graph kept in the folder, or cut into parts; None for the paper's, loaded by name."""
        path = self.path / GRAPH_FILE
        if path.is_file():
            return load_graph(path)
        parts = self.read("settings.json").get("parts")
        return whole_graph(Path(parts)) if isinstance(parts, str) else None

    def finish(self, seed: int, result: dict[str, Any], trained: TrainedModel | None = None) -> None:
        """Write the result of a seed, which marks it as finished, and delete what would continue it.

        The weights and the metrics of ``trained`` are written before it.
        """
        files: dict[str, bytes] = {}
        if trained is not None:
            weights = {name: tensor.detach().cpu().contiguous() for name, tensor in trained.weights.items()}
            rows = [[_metric_cell(row[metric]) for metric in METRICS] for row in trained.metrics]
            files[WEIGHTS] = save(weights, {"version": __version__})
            files[CURVES] = csv_text(METRICS, rows).encode()
            self.path.stat()  # a run folder that was removed in the meantime is not created again
        for name, data in files.items():
            write_atomic(self.seed_path(seed) / name, data)
        sums = {"files": {name: sha256(data) for name, data in files.items()}} if files else {}
        content = {**result, "identity": self._identity(), **sums}
        write_sealed_json(self.seed_path(seed) / "result.json", content)
        for pattern in ("checkpoint*.safetensors", f"{SHARED}*.safetensors"):
            for path in self.seed_path(seed).glob(pattern):
                path.unlink(missing_ok=True)

    def summarize(self, seeds: Iterable[int], summary: dict[str, Any]) -> None:
        """Write ``result.json`` and one ``metrics.csv`` for all seeds."""
        rows = [[seed, *row] for seed in seeds for row in self.curves(seed)[1:]]
        table = csv_text(("seed", *METRICS), rows)
        write_atomic(self.path / CURVES, table)
        self.write("result.json", {**summary, "files": {CURVES: sha256(table.encode())}})


def graph_parts(graph: Graph) -> str:
    """Return the folder of the parts that a graph is one of; nothing for a whole graph."""
    folder = getattr(graph, "folder", "")
    return str(Path(folder).resolve()) if folder else ""


def _describe(graph: Graph, settings: Settings) -> dict[str, Any]:
    return {
        "dataset": graph.name,
        "nodes": graph.num_nodes,
        "features": graph.num_features,
        "classes": list(graph.class_names),
        "targets": graph.targets.name,
        "graph": graph_fingerprint(graph),
        "validation": graph.validation,
        "settings": settings.as_dict(),
        "version": __version__,
        "versions": versions(),
    }


def _files_of(graph: Graph) -> dict[str, bytes]:
    """Return the content of the files with the split and, unless it is one of the paper's, the graph."""
    splits = io.BytesIO()
    np.savez_compressed(splits, **{name: getattr(graph, name).cpu().numpy() for name in SPLITS})
    own = graph.name not in names() or graph.recipe  # with a recipe, "cora" is a user's own folder
    return {"split.npz": splits.getvalue(), **({GRAPH_FILE: graph_to_bytes(graph)} if own else {})}


def _difference(what: str, before: Any, now: Any) -> str:
    """Name what differs; for settings, the first one that does."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name, value in now.items():
            if before.get(name) != value:
                return f"setting: {name} was {before.get(name)!r}, now {value!r}"
    return f"{what}: it was {before!r}, now {now!r}"


def _metric_cell(value: float) -> float:
    """Return a metric for a table: whole numbers without decimals."""
    return int(value) if float(value).is_integer() and abs(value) < 1e9 else value
