"""Trained models from run folders, and the graphs they were trained on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bvat.data import load
from bvat.data.loading import names
from bvat.errors import DataError, SettingsError
from bvat.graph import Graph
from bvat.inference.classifier import Classifier, build_classifier, read_class_names, read_settings
from bvat.store.folder import GRAPH_FILE, RunFolder
from bvat.training.provenance import graph_fingerprint

_CONTENT = {
    "settings": (dict, "an object"),
    "classes": (list, "a list"),
    "features": (int, "a whole number"),
    "graph": (str, "a text"),
}
"""What ``settings.json`` must contain for predicting."""


@dataclass(frozen=True)
class SavedRun:
    """A run folder with at least one finished seed; ``about`` is its ``settings.json``."""

    folder: RunFolder
    about: dict[str, Any]
    seeds: tuple[int, ...]

    @property
    def name(self) -> str:
        """The name of the run in tables and pages."""
        return self.folder.path.resolve().name

    @property
    def method(self) -> str:
        """The training method."""
        return str(self.about["settings"]["method"])

    def classifier(self, graph: Graph, seed: int | None = None) -> Classifier:
        """Return the model of one seed, or all seeds as an ensemble; GraphError if the graph does not fit.

        Args:
            graph: the graph to predict.
            seed: None for all seeds.
        """
        if seed is not None and seed not in self.seeds:
            finished = ", ".join(map(str, self.seeds))
            raise SettingsError(f"{self.folder.path} has no finished seed {seed}: use one of {finished}")
        where = str(self.folder.path)
        found = build_classifier(
            [self.folder.weights(k) for k in (self.seeds if seed is None else (seed,))],
            read_settings(self.about["settings"], where, str(self.about.get("version"))),
            read_class_names(self.about["classes"], where),
            self.about["features"],
            self.kept_graph.recipe if self.kept_graph is not None else {},
            where,
        )
        found.check(graph)
        return found

    @cached_property
    def kept_graph(self) -> Graph | None:
        """The graph in the run folder; None for the paper's, which are loaded by name."""
        graph = self.folder.graph()
        if graph is not None and graph_fingerprint(graph) != self.about["graph"]:
            raise DataError(
                f"{self.folder.path / GRAPH_FILE} is not the graph that the run was trained on: restore it, "
                "or train again"
            )
        return graph

    def graph(self, path: str | None = None) -> Graph:
        """Return the graph of the run; with a path, another graph whose features are made the same way."""
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
                f"the data set {dataset} on this machine differs from the one that {self.folder.path} was "
                f"trained on (features, edges, labels or splits): use --graph {dataset} to predict it anyway"
            )
        return graph

    def trained_on(self, graph: Graph) -> Tensor | None:
        """Return which nodes of a graph the models were trained on, bool (N); None where that is unknown.

        Validation nodes count as such: they chose the epoch. Nodes are recognised by their ids, or without
        ids by their position if the features there are the same as in the graph of the run.
        """
        try:
            own = self.graph()
        except DataError:
            return None
        used = torch.cat([own.train, own.val])
        if own.node_names is not None and graph.node_names is not None:
            names = {own.node_names[node] for node in used.tolist()}
            return torch.tensor([name in names for name in graph.node_names])
        if int(used.max()) >= graph.num_nodes:
            return None
        rows = [each.features.select(used).tensors() for each in (own, graph)]
        if not all(torch.equal(ours, theirs) for ours, theirs in zip(*rows, strict=False)):
            return None
        found = torch.zeros(graph.num_nodes, dtype=torch.bool)
        found[used] = True
        return found


def open_run(path: str | Path) -> SavedRun:
    """Open a run folder that ``bvat train`` wrote.

    Raises:
        DataError: it is not a run folder, no seed has finished, or it lacks what predicting needs.
    """
    folder = RunFolder(Path(path))
    if not folder.exists:
        raise DataError(f"{folder.path} is not a run folder: give the folder that bvat train wrote")
    about = folder.read("settings.json")
    missing = [key for key in _CONTENT if key not in about]
    if missing:
        raise DataError(f"{folder.path} lacks its {missing[0]} because an older bvat wrote it: train again")
    wrong = [key for key, (kind, _) in _CONTENT.items() if not isinstance(about[key], kind)]
    if wrong:
        key = wrong[0]
        raise DataError(
            f"{folder.path / 'settings.json'} is damaged ({key} is not {_CONTENT[key][1]}): train again"
        )
    if about.get("keep") == "result":
        raise DataError(f"{folder.path} keeps results without weights: train the model with bvat train")
    seeds = folder.seeds()
    if not seeds:
        raise DataError(f"{folder.path} has no finished seed: finish it with bvat train --resume")
    return SavedRun(folder, about, seeds)
