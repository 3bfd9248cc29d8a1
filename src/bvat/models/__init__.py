"""Models, each split into ``project`` (the linear map of the features) and ``propagate`` (the rest)."""

from collections.abc import Callable
from typing import Any

from bvat.models.appnp import APPNP
from bvat.models.base import Masks, ProjectedModel, linearize
from bvat.models.gat import GAT
from bvat.models.gcn import GCN
from bvat.models.mlp import MLP
from bvat.models.sage import GraphSAGE
from bvat.models.sgc import SGC
from bvat.models.wrap import WrappedModule, wrap

MODELS: dict[str, Callable[..., Any]] = {
    "gcn": GCN,
    "gat": GAT,
    "sage": GraphSAGE,
    "appnp": APPNP,
    "sgc": SGC,
    "mlp": MLP,
}
"""By name; all are called as ``Model(in_features, classes, hidden=, layers=, dropout=, generator=)``."""

__all__ = [
    "APPNP",
    "GAT",
    "GCN",
    "MLP",
    "MODELS",
    "SGC",
    "GraphSAGE",
    "Masks",
    "ProjectedModel",
    "WrappedModule",
    "linearize",
    "wrap",
]
