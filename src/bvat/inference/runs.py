"""Trained models out of run folders, and the graphs they were trained on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors

from bvat.data import load
from bvat.data.loading import names
from bvat.data.store import load_graph
from bvat.errors import DataError, SettingsError
from bvat.graph import Graph
from bvat.inference.classifier import Classifier, build_classifier, read_settings
from bvat.training.checkpoint import graph_fingerprint
from bvat.training.run_folder import GRAPH_FILE, RunFolder


@dataclass(frozen=True)
class Run:
    """A finished run: what it was trained on and how, and the seeds that are done."""

    folder: RunFolder
    about: dict[str, Any]
    seeds: tuple[int, ...]

    @property
    def name(self) -> str:
        """How tables and pages call the run."""
        return self.folder.path.resolve().name

    @property
    def method(self) -> str:
        """The training method."""
        return str(self.about["settings"]["method"])

    def classifier(self, graph: Graph, seed: int | None = None) -> Classifier:
        """Return the model of one seed, or all seeds as an ensemble; refuses a graph that does not fit.

        Args:
            graph: what the model is going to be used on.
            seed: None for all.
        """
        if seed is not None and seed not in self.seeds:
            there = ", ".join(map(str, self.seeds))
            raise SettingsError(f"{self.folder.path} has no finished seed {seed}: use one of {there}")
        where = str(self.folder.path)
        found = build_classifier(
            [self._weights(k) for k in (self.seeds if seed is None else (seed,))],
            read_settings(self.about["settings"], where, str(self.about.get("version"))),
            tuple(self.about["classes"]),
            int(self.about["features"]),
            self.kept_graph.recipe if self.kept_graph is not None else {},
            where,
        )
        found.check(graph)
        return found

    def _weights(self, seed: int) -> Any:
        path = self.folder.seed_path(seed) / "weights.safetensors"
        try:
            return load_tensors(path.read_bytes())
        except (OSError, SafetensorError) as error:
            raise DataError(f"{path} cannot be read ({error}): train this seed again") from None

    @cached_property
    def kept_graph(self) -> Graph | None:
        """The graph in the run folder; None for the paper's, which are loaded by name."""
        path = self.folder.path / GRAPH_FILE
        return load_graph(path) if path.is_file() else None

    def graph(self, path: str | None = None) -> Graph:
        """Return the graph of the run; with a path, another graph, its features made in the same way."""
        if path is not None:
            kept = self.kept_graph
            return load(path, like=kept.recipe if kept is not None and kept.recipe else None)
        if self.kept_graph is not None:
            return self.kept_graph
        dataset = str(self.about["dataset"])
        if dataset not in names():
            raise DataError(f"{self.folder.path / GRAPH_FILE} is missing: give the graph with --graph")
        graph = load(dataset)
        if graph_fingerprint(graph) != self.about["graph"]:
            raise DataError(
                f"the data set {dataset} on this machine is not the one that {self.folder.path} was trained "
                f"on (other features, edges, labels or splits): say --graph {dataset} if that is meant"
            )
        return graph


def open_run(path: str | Path) -> Run:
    """Read what a run folder says about itself.

    Raises:
        DataError: it is not a run folder, no seed has finished, or it lacks what predicting needs.
    """
    folder = RunFolder(Path(path))
    if not (folder.path / "settings.json").is_file():
        raise DataError(f"{folder.path} is not a run folder: give the folder that bvat train wrote")
    about = folder.read("settings.json")
    missing = [key for key in ("settings", "classes", "features", "graph") if key not in about]
    if missing:
        raise DataError(
            f"{folder.path} does not say its {missing[0]}, so it is of an older bvat: train again"
        )
    seeds = sorted(
        int(match[1])
        for entry in folder.path.iterdir()
        if (match := re.fullmatch(r"seed-(\d+)", entry.name)) and (entry / "result.json").is_file()
    )
    if not seeds:
        raise DataError(f"{folder.path} has no finished seed: finish it with bvat train --resume")
    return Run(folder, about, tuple(seeds))
