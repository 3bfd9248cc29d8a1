"""A trained model with everything needed to use it: settings, class names, and how features are made."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from bvat.errors import DataError, GraphError, SettingsError
from bvat.graph import Graph
from bvat.graph.targets import ONE_CLASS, OneClass
from bvat.models.arguments import reads_attributes
from bvat.plugins import is_path
from bvat.training.loop import predict
from bvat.training.settings import Settings
from bvat.training.state import restore_model
from bvat.tuning.cross_validation import scores_of


@dataclass(frozen=True, eq=False)
class Classifier:
    """One model, or several whose probabilities are averaged.

    Shapes: each model maps a graph with D features to logits (N, C).
    """

    models: tuple[nn.Module, ...]
    settings: Settings
    class_names: tuple[str, ...]
    num_features: int
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """How the features were made: ``graph.recipe`` of the training graph."""
    temperature: float = 1.0
    """The factor of the logits that calibrates probabilities; that of an ensemble is in its model."""
    targets: OneClass = ONE_CLASS
    """Whether a node has one class or several labels."""

    @classmethod
    def read(
        cls,
        about: Mapping[str, Any],
        weights: Iterable[Mapping[str, Tensor]],
        where: str,
        targets: OneClass,
        models: Sequence[Any] = (),
    ) -> Classifier:
        """Return models from what is stored of them; DataError naming ``where`` if it cannot be used.

        Args:
            about: the ``settings``, ``classes``, ``features``, ``recipe``, ``temperature`` and ``version``.
            weights: of each model.
            where: they were read.
            targets: what they predict.
            models: those that may be imported, by name or themselves: what a file names could be anybody's
                code.
        """
        names, features, factor = about["classes"], about["features"], about["temperature"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise DataError(f"{where} is damaged (its class names are not a list of texts): train again")
        if type(features) is not int or not 0 < features < 2**31 or not names:
            raise DataError(f"{where} is damaged (it names no classes, or no features): train again")
        if not 0 < factor < math.inf:
            raise DataError(f"{where} is damaged (its temperature is {factor}): train again")
        settings, made = _stored_settings(about, where, models), []
        for state in weights:
            if not all(bool(tensor.isfinite().all()) for tensor in state.values()):
                raise DataError(f"the weights in {where} are not finite numbers: train again with a lower lr")
            try:
                made.append(restore_model(settings, features, len(names), state))
            except ValueError:
                raise DataError(
                    f"the weights in {where} do not fit the model {settings.model!r} described beside them: "
                    "train again"
                ) from None
        return cls(tuple(made), settings, tuple(names), features, about["recipe"], factor, targets)

    def check(self, graph: Graph) -> None:
        """Raise GraphError unless the graph has the features and classes of the training graph."""
        if graph.num_features != self.num_features:
            raise GraphError(
                f"{graph.name} has {graph.num_features} features, but the model was trained with "
                f"{self.num_features}: give a graph with the same features"
            )
        if graph.targets is not self.targets and bool(graph.labelled.any()):
            raise GraphError(
                f"the labels of {graph.name} are {graph.targets.words}, but the model was trained with "
                f"{self.targets.words}: leave out the labels, or train on this graph"
            )
        unknown = [name for name in graph.class_names if name not in self.class_names]
        if unknown:
            raise GraphError(
                f"{graph.name} has a class {unknown[0]!r}, which the model does not know: remove its labels, "
                "or train on this graph"
            )
        if graph.directed != bool(self.recipe.get("directed")):
            this, that = ("directed", "undirected")[:: 1 if graph.directed else -1]
            raise GraphError(
                f"{graph.name} is {this}, but the graph that the model was trained on is {that}: read it "
                "with bvat.load(path, like=training_graph)"
            )
        theirs, ours = (recipe.get("edge_attr") for recipe in (graph.recipe, self.recipe))
        if theirs != ours and any(map(reads_attributes, self.models)):
            names = ", ".join((ours or {}).get("names", ())) or "none"
            raise GraphError(
                f"{graph.name} lacks the edge attributes that the model was trained with ({names}), or they "
                "were made differently: read a graph that has them with bvat.load(path, like=training_graph)"
            )
        if graph.recipe and self.recipe and _features_of(graph.recipe) != _features_of(self.recipe):
            raise GraphError(
                f"the features of {graph.name} were made differently from those of the training graph: "
                "read it with bvat.load(path, like=training_graph.recipe)"
            )

    def probabilities(self, graph: Graph) -> Tensor:
        """Return the mean over the models of ``softmax(temperature * logits)``, shape (N, C).

        With several labels per node these are ``sigmoid(temperature * logits)``.
        """
        self.check(graph)
        dtype = next(self.models[0].parameters()).dtype
        if graph.features.dtype != dtype:
            graph = graph.to(dtype=dtype)
        models = [model.to(graph.device) for model in self.models]
        return torch.stack(
            [self.targets.probabilities(self.temperature * predict(model, graph)) for model in models]
        ).mean(0)

    def labels(self, graph: Graph) -> Tensor:
        """Return the labels of a graph as indices of the model's classes, int64 (N), -1 for unknown.

        With several labels per node, return the columns of the model's classes, (N, C).
        """
        indices = [self.class_names.index(name) for name in graph.class_names]
        if graph.targets is not self.targets:  # none is known
            unknown = self.targets.unknown(graph.num_nodes, len(self.class_names))
            return torch.from_numpy(unknown).to(graph.device)
        return self.targets.renumbered(graph.labels, indices, len(self.class_names))

    def scores(self, graph: Graph, probabilities: Tensor, nodes: Tensor) -> dict[str, Any] | None:
        """Return accuracy with its 95 % interval, macro F1 and F1 of each class, see :func:`scores_of`.

        Args:
            graph: with the labels.
            probabilities: what :meth:`probabilities` returned, (N, C).
            nodes: the nodes to score, int64 (m); those without a label do not count, and None is returned
                if none has one.
        """
        labels = self.labels(graph)
        nodes = nodes[self.targets.known(labels)[nodes]]
        if not nodes.numel():
            return None
        return scores_of(self.targets.decided(probabilities)[nodes], labels[nodes], self.class_names)


INSIDE = "about.temperature"
"""What an ensemble calls the temperature that it has inside."""


def uncalibrated(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of an ensemble without its temperature, and those of other models as they are."""
    return weights | {INSIDE: torch.ones_like(weights[INSIDE])} if INSIDE in weights else weights


def _stored_settings(about: Mapping[str, Any], where: str, models: Sequence[Any]) -> Settings:
    """Return stored settings; missing ones get their defaults, unknown or invalid ones raise DataError."""
    stored = about["settings"]
    name = stored.get("model") if isinstance(stored, dict) else None
    if is_path(name):
        given = [model for model in models if not isinstance(model, str) or model == name]
        if not given:
            raise DataError(
                f"{where} was trained with the model {name}, code that bvat does not import unasked: if you "
                f"trust it, name it with --model {name}, or model= in Python"
            )
        stored = {**stored, "model": given[0]}
    try:
        return Settings(**stored)
    except (SettingsError, TypeError) as error:
        raise DataError(
            f"{where} was written by bvat {about.get('version')} with settings that are not valid here "
            f"({error}): use that version, or train again"
        ) from None


_OTHERS = ("classes", "directed", "edge_attr", "targets")
"""What a recipe says besides how features are made."""


def _features_of(recipe: Mapping[str, Any]) -> str:
    return json.dumps({key: value for key, value in recipe.items() if key not in _OTHERS}, sort_keys=True)
