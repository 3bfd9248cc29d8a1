"""Models, each split into ``project`` (the linear map of the features) and ``propagate`` (the rest).

``table`` lists the models by name. Names are imported when they are first used, so that the table alone is
cheap to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bvat.models.table import MODELS

if TYPE_CHECKING:
    from bvat.models.appnp import APPNP
    from bvat.models.base import Masks, ProjectedModel, linearize
    from bvat.models.gat import GAT
    from bvat.models.gcn import GCN
    from bvat.models.gpnn import GPNN
    from bvat.models.mlp import MLP
    from bvat.models.monet import MoNet
    from bvat.models.random_propagation import RandomPropagation
    from bvat.models.sage import GraphSAGE
    from bvat.models.sgc import SGC
    from bvat.models.wrapped import WrappedModule, wrap

_MODULE_OF = {
    "APPNP": "appnp", "GAT": "gat", "GCN": "gcn", "GPNN": "gpnn", "MLP": "mlp",
    "MoNet": "monet", "SGC": "sgc", "GraphSAGE": "sage",
    "Masks": "base", "ProjectedModel": "base", "RandomPropagation": "random_propagation",
    "WrappedModule": "wrapped", "linearize": "base", "wrap": "wrapped",
}  # fmt: skip

__all__ = [
    "APPNP", "GAT", "GCN", "GPNN", "MLP", "MODELS", "SGC", "GraphSAGE", "Masks", "MoNet", "ProjectedModel",
    "RandomPropagation", "WrappedModule", "linearize", "wrap",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'bvat.models' has no attribute {name!r}")
    return getattr(import_module(f"bvat.models.{_MODULE_OF[name]}"), name)
