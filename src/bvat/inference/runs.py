"""Run folders: their models and graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bvat.baselines.table import AUTO
from bvat.data import load
from bvat.data.loading import names
from bvat.errors import DataError, SettingsError
from bvat.graph import Graph
from bvat.graph.targets import ONE_CLASS, TARGETS, OneClass
from bvat.inference.classifier import Classifier, uncalibrated
from bvat.store.folder import AUTO_FILE, GRAPH_FILE, RunFolder
from bvat.training.provenance import graph_fingerprint
from bvat.tuning.cross_validation import calibration_of, checked_logits

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
    models: tuple[Any, ...] = ()
    """Models of one's own that may be imported, by name or themselves."""

    @property
    def name(self) -> str:
        return self.folder.path.resolve().name

    @property
    def method(self) -> str:
        return str(self.about["settings"]["method"])

    @cached_property
    def out_of_fold(self) -> dict[str, Any] | None:
        """What models that had not seen a label say of its node, see :func:`held_out_logits`; or None."""
        try:
            if (self.folder.path / AUTO_FILE).exists():
                return checked_logits(self.folder.read(AUTO_FILE).get("out_of_fold"))
            fit = self.folder.checked_result(self.seeds[0]).get("fit") or {}
            return checked_logits(fit.get("out_of_fold"))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"the held-out predictions of {self.folder.path} are damaged ({error})") from None

    @property
    def targets(self) -> OneClass:
        """What is predicted of a node."""
        found = self.about.get("targets", ONE_CLASS.name)
        if str(found) not in TARGETS:
            where = self.folder.path / "settings.json"
            raise DataError(f"{where} is damaged (targets are {found!r}): train again")
        return TARGETS[str(found)]

    @property
    def temperature(self) -> float:
        """The factor of the logits that calibrates them; an ensemble has it inside."""
        return 1.0 if self.method == AUTO else calibration_of(self.out_of_fold)

    def classifier(self, graph: Graph, seed: int | None = None, *, calibrate: bool = True) -> Classifier:
        """Return the model of one seed, or all seeds as an ensemble; GraphError if the graph does not fit."""
        if seed is not None and seed not in self.seeds:
            finished = ", ".join(map(str, self.seeds))
            raise SettingsError(f"{self.folder.path} has no finished seed {seed}: use one of {finished}")
        weights = [self.folder.weights(k) for k in (self.seeds if seed is None else (seed,))]
        recipe = {} if self.kept_graph is None else self.kept_graph.recipe
        about = {**self.about, "recipe": recipe, "temperature": self.temperature if calibrate else 1.0}
        weights = weights if calibrate else list(map(uncalibrated, weights))
        found = Classifier.read(about, weights, str(self.folder.path), self.targets, self.models)
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


def open_run(path: str | Path, models: Sequence[Any] = ()) -> SavedRun:
    """Open a run folder that ``bvat train`` wrote.

    Args:
        path: the folder.
        models: of a run with a model that is not bvat's: its name, ``module:Class``, or the model itself.

    Raises:
        DataError: it is not a run folder, no seed has finished, or it lacks what predicting needs.
    """
    folder = run_folder(path)
    about = folder.read("settings.json")
    for key, (kind, described) in _CONTENT.items():
        if not isinstance(about.get(key), kind):
            raise DataError(
                f"{folder.path / 'settings.json'} is damaged ({key} is not {described}): train again"
            )
    if about.get("keep") == "result":
        raise DataError(f"{folder.path} keeps results without weights: train the model with bvat train")
    seeds = folder.seeds()
    if not seeds:
        raise DataError(f"{folder.path} has no finished seed: finish it with bvat train --resume")
    return SavedRun(folder, about, seeds, tuple(models))


def run_folder(path: str | Path) -> RunFolder:
    """Return a run folder that exists; DataError if it is none."""
    folder = RunFolder(Path(path))
    if not folder.exists:
        raise DataError(f"{folder.path} is not a run folder: give the folder that bvat train wrote")
    return folder
