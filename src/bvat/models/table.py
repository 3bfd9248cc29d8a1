"""The table of models: one row per model, with its settings. Importing it imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from bvat.models.options import Options, option
from bvat.plugins import Home, Table, imported, is_path


@dataclass(frozen=True, kw_only=True)
class SGCOptions(Options):
    layers: int = option(2, "number of layers K", at_least=1, at_most=1000)
    dropout: float = option(0.5, "dropout rate", at_least=0, below=1)


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(SGCOptions):
    """Of every model with hidden layers."""

    hidden: int = option(16, "width of the hidden layers", at_least=1, at_most=2**16)


@dataclass(frozen=True, kw_only=True)
class GATOptions(NetworkOptions):
    heads: int = option(8, "attention heads of the hidden layers", at_least=1, at_most=1000)
    output_heads: int = option(
        1, "attention heads of the last layer, which are averaged", at_least=1, at_most=1000
    )


@dataclass(frozen=True, kw_only=True)
class MoNetOptions(NetworkOptions):
    kernels: int = option(3, "Gaussian kernels per layer", at_least=1, at_most=1000)
    coordinates: int = option(2, "pseudo-coordinates of an edge", at_least=1, at_most=1000)
    aggregation: str = option("sum", "sum or mean over the neighbours of a node", choices=("sum", "mean"))


@dataclass(frozen=True, kw_only=True)
class GPNNOptions(NetworkOptions):
    clusters: int = option(5, "clusters that the nodes are divided into", at_least=1, at_most=100_000)


@dataclass(frozen=True, kw_only=True)
class APPNPOptions(NetworkOptions):
    power_steps: int = option(10, "steps of the propagation", at_least=0, at_most=10_000)
    teleport: float = option(
        0.1, "share of its own prediction or features that a node keeps per step", at_least=0, at_most=1
    )


@dataclass(frozen=True, kw_only=True)
class RandomPropagationOptions(APPNPOptions):
    spread: str = option(
        "pagerank",
        "weights of the steps: falling by 1 - teleport, or all equal",
        choices=("pagerank", "mean"),
    )
    node_dropout: float = option(0.5, "share of the nodes whose features a pass drops", at_least=0, below=1)
    input_dropout: float = option(0.5, "share of the feature columns that a pass drops", at_least=0, below=1)
    batch_norm: bool = option(
        False, "normalise hidden layers over the nodes, and learn a factor for every feature column"
    )


@dataclass(frozen=True)
class Model:
    """A model that ``--model`` names.

    Args:
        name: what ``--model`` and :class:`bvat.Settings` call it.
        title: its name in tables.
        home: ``module:class``, or the class itself, called as ``Class(in_features, classes, generator=,
            **options)``; see :func:`bvat.models.own.build` for classes that are not bvat's.
        options: its settings, which are the arguments of the class.
        distributed: whether it runs over several ranks: its sums over nodes go through the engine, and all
            that it reads of neighbours comes through the matrix (:mod:`bvat.parts`).
        weighs_edges: whether it uses edge weights, or reads no edges at all.
        reads_attributes: whether it takes ``edge_features=``, the number of attributes of an edge.
        colour: for a model that is not bvat's, its place in the palette of charts.
    """

    name: str
    title: str
    home: Home
    options: type[Options] = NetworkOptions
    distributed: bool = False
    weighs_edges: bool = True
    reads_attributes: bool = False
    colour: int = 7

    @property
    def arguments(self) -> tuple[str, ...]:
        return tuple(f.name for f in fields(self.options))

    @property
    def is_own(self) -> bool:
        return MODELS.own.get(self.name) is self

    def load(self) -> Any:
        return imported(self.home, here=is_path(self.name))

    def build(
        self,
        options: Options,
        in_features: int,
        classes: int,
        generator: Any = None,
        edge_features: int = 0,
    ) -> Any:
        if self.is_own:
            more = {"edge_features": edge_features} if self.reads_attributes else {}
            return self.load()(in_features, classes, generator=generator, **options.as_dict(), **more)
        from bvat.models.own import build  # imports torch

        return build(self.load(), in_features, classes, options.as_dict(), generator)


_ROWS = [
    Model("gcn", "GCN", "bvat.models.gcn:GCN", distributed=True),
    Model("gat", "GAT", "bvat.models.gat:GAT", GATOptions, weighs_edges=False, reads_attributes=True),
    Model("monet", "MoNet", "bvat.models.monet:MoNet", MoNetOptions),
    Model("gpnn", "GPNN", "bvat.models.gpnn:GPNN", GPNNOptions, weighs_edges=False),
    Model("sage", "GraphSAGE", "bvat.models.sage:GraphSAGE", distributed=True),
    Model("appnp", "APPNP", "bvat.models.appnp:APPNP", APPNPOptions, distributed=True),
    Model(
        "random-propagation",
        "random propagation",
        "bvat.models.random_propagation:RandomPropagation",
        RandomPropagationOptions,
        distributed=True,
    ),
    Model("sgc", "SGC", "bvat.models.sgc:SGC", SGCOptions, distributed=True),
    Model("mlp", "MLP", "bvat.models.mlp:MLP", distributed=True),
]

MODELS = Table("bvat.models", Model, _ROWS)
"""By name, in the order of tables."""


def find_model(name: str, home: Any = None) -> Model:
    """Return the row of a model; one that has none is called by its ``module:name``, and has no settings.

    Nothing is imported. ``home`` is the class, function or module itself, if there is one.
    """
    if name not in MODELS and (home is not None or is_path(name)):
        return Model(name, name.rpartition(":")[2], name if home is None else home, Options)
    return MODELS[name]
