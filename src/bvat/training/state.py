"""The state of a training run, and the one function that starts it."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from bvat.baselines.table import BASELINES
from bvat.engine.draws import Draws
from bvat.errors import GraphError, SettingsError
from bvat.graph import Graph
from bvat.models.base import first_weights
from bvat.models.own import OwnModule
from bvat.perturb.nodes import DisjointFields
from bvat.perturb.terms import Method, build_method
from bvat.training.memory import keep_freed_arrays
from bvat.training.optimizer import Adam, make_optimizer
from bvat.training.options import LOSS_RULES
from bvat.training.settings import Settings
from bvat.training.statistics import balanced_weights
from bvat.training.trained import Scored, scored_part


@dataclass
class TrainState:
    """What training works on (graph, settings, seed) and everything that changes while it runs.

    ``method.alpha`` and ``method.beta`` are the weights of Eq. 6 and ``method.agreement`` that of several
    passes; they start as in the settings, and a callback may change them between epochs. Setting ``stop``
    ends training after the current epoch.
    """

    graph: Graph
    settings: Settings
    seed: int
    model: Any
    optimizer: Adam
    method: Method
    generator: Draws
    average: Any = None
    """The model with averaged weights, if there is one; that is what is evaluated and kept."""
    scaling: float | Tensor = 1.0
    epoch: int = 0
    metrics: list[dict[str, float]] = field(default_factory=list)
    stop: bool = False
    events: list[str] = field(default_factory=list)
    """What happened during training that the user should know, one sentence each."""
    sizes: Tensor | None = None
    """How many nodes are predicted to have each class, int64 (C), if ``needs_all_predictions``."""
    class_weights: Tensor | None = None
    """Weight of each class in the supervised loss, (C); None: all alike."""
    interrupted: bool = False
    """Whether Ctrl-C was pressed: training ends after the current epoch and raises KeyboardInterrupt."""

    @property
    def evaluated(self) -> Any:
        return self.model if self.average is None else self.average

    @cached_property
    def scored(self) -> Scored:
        return scored_part(self.graph, self.model, every=self.needs_all_predictions)

    @property
    def needs_all_predictions(self) -> bool:
        """Whether every epoch needs the validation loss and the share of the largest predicted class."""
        return bool(self.settings.pretrain) or self.settings.select in LOSS_RULES

    def say_once(self, text: str) -> None:
        """Add an event unless it is known, such as from before training was resumed."""
        if text not in self.events:
            self.events.append(text)


def feature_factor(graph: Graph, settings: Settings) -> float | Tensor:
    """Return what features are multiplied with: 1, what makes the root mean square row length 1, or (D).

    The factors of columns are ``1 / sqrt(v_j + mean(v) / 2)``, v_j the variance of column j: columns that
    vary least are mostly noise, and do not get the weight of the others.
    """
    if settings.scale == "none":
        return 1.0
    if settings.scale == "columns":
        variances = graph.column_variances()
        mean = float(variances.mean())
        if not 0 < mean < math.inf:
            return 1.0
        return (variances + mean / 2).rsqrt().to(graph.features.dtype)
    squares = torch.cat([piece.features.row_squares() for piece in graph.pieces()])
    length = float(graph.engine.mean(squares).sqrt())
    if not 0 < length < math.inf:  # the squares of 1e-30 and 1e30 are beyond float32
        length = float(graph.engine.mean(graph.features.to(dtype=torch.float64).row_squares()).sqrt())
    return 1 / length if length > 0 and math.isfinite(1 / length) else 1.0


def check_targets(graph: Graph, settings: Settings) -> None:
    """Raise SettingsError if nodes have several labels and the settings need one class per node."""
    require, method = graph.targets.require_one_class, settings.method
    if method in BASELINES:
        require(f"method {method}", "use vat, or none for the plain model")
    if settings.class_weights != "none":
        require("class_weights", "leave it out")
    if getattr(settings.of_method, "samples", 1) > 1:
        require("samples above 1, GRAND's agreement of several passes,", "use method vat and samples 1")
    if getattr(settings.of_method, "divergence", "kl") == "squared":
        require("divergence squared", "leave it out, for the Bernoulli divergence")


def _check_memory(graph: Graph, settings: Settings) -> None:
    """Raise SettingsError if the weights, their gradient and Adam's moments certainly exceed the memory."""
    width = getattr(settings, "hidden", 1) * getattr(settings, "heads", 1)
    layers = getattr(settings, "layers", 1)
    needed = 16 * width * (graph.num_features + (layers - 2) * width)
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if layers > 1 and needed > there:
        raise SettingsError(
            f"hidden {width} with {graph.num_features} features needs {needed / 2**30:.0f} GiB, "
            "more than this machine has: use a smaller one"
        )


def build_model(
    settings: Settings,
    num_features: int,
    num_classes: int,
    generator: torch.Generator | None = None,
    edge_features: int = 0,
) -> nn.Module:
    """Return a model for D features, C classes and F edge attributes, with weights from ``generator``."""
    model: nn.Module = settings.model_row.build(
        settings.of_model, num_features, num_classes, generator, edge_features
    )
    return model


def start_training(graph: Graph, settings: Settings, seed: int = 0) -> TrainState:
    """Return the state before the first epoch. The graph must be on the device to train on.

    ``state.graph`` has the features scaled as the settings say; ``state.scaling`` is their factor.
    """
    if not graph.engine.total(graph.train.numel()):
        raise GraphError(f"{graph.name} has no labels to train on: label a few nodes of each class")
    check_targets(graph, settings)
    scaling = feature_factor(graph, settings)
    if isinstance(scaling, Tensor):
        graph = graph.with_features(graph.features.times_columns(scaling))
    elif scaling != 1:
        graph = graph.scaled(scaling)
    _check_memory(graph, settings)
    keep_freed_arrays()
    # dropout and search have their own stream, so that they do not repeat the random numbers of the weights
    generator = graph.engine.draws(seed + 2**32, graph)
    weights = torch.Generator().manual_seed(seed)
    class_weights = None
    if settings.class_weights == "balanced":
        class_weights = balanced_weights(graph.labels[graph.train], graph.num_classes, graph.engine)
        class_weights = class_weights.to(graph.features.dtype)
    method = build_method(settings.method, settings.of_method, generator, class_weights)
    width = 0 if graph.edge_attr is None else graph.edge_attr.shape[1]
    model = build_model(settings, graph.num_features, graph.num_classes, weights, width)
    model = model.to(graph.device, graph.features.dtype)
    if isinstance(model, OwnModule):
        model.independent = graph.targets.independent
    told = _check_reading(model, graph, settings, scaled=isinstance(scaling, Tensor) or scaling != 1)
    state = TrainState(
        graph=graph,
        settings=settings,
        seed=seed,
        model=model,
        optimizer=make_optimizer(model, settings.training),
        method=method,
        generator=generator,
        average=copy.deepcopy(model) if settings.average else None,
        scaling=scaling,
        class_weights=class_weights,
    )
    for what, text in told.items():
        if what != "features" or method.regulariser is not None:
            state.say_once(text)
    if isinstance(nodes := getattr(method.regulariser, "nodes", None), DisjointFields):
        nodes.tell = state.say_once
    return state


def _check_reading(model: Any, graph: Graph, settings: Settings, *, scaled: bool) -> dict[str, str]:
    """Return what the user should know of how a model reads ``features``, ``edges`` and ``attributes``.

    Raises:
        SettingsError: the features are scaled, and no weights are there that this factor could go into.
    """
    if not isinstance(model, OwnModule):
        row, reason = settings.model_row, ""
        weighs, reads = row.weighs_edges, row.reads_attributes
    elif type(graph) is not Graph:
        raise SettingsError(f"{settings.model} runs on a whole graph only: train it without parts")
    else:
        reason, given = model.inspect(graph), model.inputs(graph).arguments.kwargs
        weighs, reads = ("edge_weight" in given, "edge_attr" in given)
    if scaled and not first_weights(model):
        why = f" ({reason})" if reason else ""
        raise SettingsError(
            f"scale {settings.scale!r} needs a model whose first layer is linear in the features, and "
            f"{settings.model} has none{why}: use scale 'none'"
        )
    found = {}
    if reason:
        found["features"] = f"x itself is perturbed, which takes N x D numbers, because {reason}"
    if not weighs and type(graph) is Graph and bool((graph.adjacency.values != 1).any()):
        found["edges"] = f"{settings.model} does not use the edge weights of {graph.name}"
    if not reads and graph.edge_attr is not None:
        found["attributes"] = f"{settings.model} does not use the edge attributes of {graph.name}"
    return found


def check_fits(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless tensors have the names, shapes and types of others."""
    if found.keys() != expected.keys():
        odd = sorted(found.keys() ^ expected.keys())[0]
        raise ValueError(f"{odd} is missing or unexpected")
    for name, tensor in found.items():
        if (tensor.shape, tensor.dtype) != (expected[name].shape, expected[name].dtype):
            raise ValueError(f"{name} has shape {tuple(tensor.shape)} and type {tensor.dtype}")


def restore_model(
    settings: Settings, num_features: int, num_classes: int, weights: Mapping[str, Tensor]
) -> nn.Module:
    """Return a trained model in evaluation mode; ValueError if the weights do not fit the settings."""
    if settings.method in BASELINES:
        fitted: nn.Module = BASELINES[settings.method].restore(weights, num_features, num_classes)
        return fitted.eval()
    sizes = num_features, num_classes, None, len(weights.get("edge.0", ()))
    wide = any(tensor.dtype == torch.float64 for tensor in weights.values())
    dtype = torch.float64 if wide else torch.float32
    if settings.model_row.is_own:
        with torch.device("meta"):  # shapes alone: settings of others may ask for more memory than there is
            check_fits(weights, build_model(settings, *sizes).to(dtype).state_dict())
    model = build_model(settings, *sizes).to(dtype)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(str(error)) from None
    return model.eval()
