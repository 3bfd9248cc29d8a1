"""The table of models: one row per model. Importing it imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Model:
    """A model that ``--model`` names.

    Args:
        name: what ``--model`` and :class:`bvat.Settings` call it.
        title: its name in tables.
        home: ``module:class``, called as ``Class(in_features, classes, generator=, **arguments)``.
        arguments: the settings that it takes.
        distributed: whether it runs over several ranks: its sums over nodes go through the world, and all
            that it reads of neighbours comes through the matrix (:mod:`bvat.parts`).
    """

    name: str
    title: str
    home: str
    arguments: tuple[str, ...] = ("hidden", "layers", "dropout")
    distributed: bool = False

    def load(self) -> Callable[..., Any]:
        """Return the class."""
        module, _, name = self.home.partition(":")
        found: Callable[..., Any] = getattr(import_module(module), name)
        return found

    def build(self, settings: Any, in_features: int, classes: int, generator: Any = None) -> Any:
        """Return the model with the arguments that it takes of ``settings``."""
        arguments = {name: getattr(settings, name) for name in self.arguments}
        return self.load()(in_features, classes, generator=generator, **arguments)


_ROWS = [
    Model("gcn", "GCN", "bvat.models.gcn:GCN", distributed=True),
    Model("gat", "GAT", "bvat.models.gat:GAT", ("hidden", "layers", "dropout", "heads", "output_heads")),
    Model(
        "monet",
        "MoNet",
        "bvat.models.monet:MoNet",
        ("hidden", "layers", "dropout", "kernels", "coordinates", "aggregation"),
    ),
    Model(
        "gpnn",
        "GPNN",
        "bvat.models.gpnn:GPNN",
        ("hidden", "layers", "dropout", "clusters", "partition", "readout_layers"),
    ),
    Model("sage", "GraphSAGE", "bvat.models.sage:GraphSAGE", distributed=True),
    Model(
        "appnp",
        "APPNP",
        "bvat.models.appnp:APPNP",
        ("hidden", "layers", "dropout", "power_steps", "teleport"),
        distributed=True,
    ),
    Model(
        "random-propagation",
        "random propagation",
        "bvat.models.random_propagation:RandomPropagation",
        (
            "hidden",
            "layers",
            "dropout",
            "power_steps",
            "teleport",
            "spread",
            "node_dropout",
            "input_dropout",
            "batch_norm",
        ),
        distributed=True,
    ),
    Model("sgc", "SGC", "bvat.models.sgc:SGC", ("layers", "dropout"), distributed=True),
    Model("mlp", "MLP", "bvat.models.mlp:MLP", distributed=True),
]

MODELS: dict[str, Model] = {model.name: model for model in _ROWS}
"""By name, in the order of tables."""
