"""Virtual adversarial training for graph neural networks.

>>> import bvat
>>> graph = bvat.synthetic_graph(nodes=300, edges=900, features=100)  # or bvat.load("cora")
>>> settings = bvat.Settings(method="obvat", epochs=20)  # or bvat.preset("cora", "obvat")
>>> trained = bvat.train(graph, settings, seed=0)
>>> sorted(trained.selected)
['epoch', 'test', 'val']

Names are imported on first use, so that ``import bvat`` and ``bvat --help`` stay fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bvat._version import __version__
from bvat.training.plottable import Plottable

if TYPE_CHECKING:
    from bvat.audit.certify import certify
    from bvat.baselines.table import Baseline, register
    from bvat.data import load, synthetic_graph
    from bvat.data.convert import from_networkx, from_pyg, from_scipy, to_pyg, to_scipy
    from bvat.data.loading import DatasetRow
    from bvat.errors import BvatError, DataError, GraphError, SettingsError, TrainingError
    from bvat.estimator.node_classifier import NodeClassifier
    from bvat.graph import Graph
    from bvat.models import APPNP, GAT, GCN, MLP, SGC, GraphSAGE, wrap
    from bvat.models.options import Options, option
    from bvat.models.table import Model
    from bvat.perturb import FLAG, GRAND, OBVAT, SBVAT, VAT, Consistency, Random, Regulariser, entropy
    from bvat.perturb.methods import MethodRow, RegulariserOptions
    from bvat.report.plots import plot
    from bvat.runs.run import RunOptions, run
    from bvat.training.callbacks import Callback
    from bvat.training.loop import TrainedModel, predict, train
    from bvat.training.settings import Settings, preset
    from bvat.training.trackers import MLflowLogger, TensorBoardLogger, WandbLogger

_HOME = {
    "bvat.audit.certify": ["certify"],
    "bvat.baselines.table": ["Baseline", "register"],
    "bvat.data": ["load", "synthetic_graph"],
    "bvat.data.convert": ["from_networkx", "from_pyg", "from_scipy", "to_pyg", "to_scipy"],
    "bvat.data.loading": ["DatasetRow"],
    "bvat.errors": ["BvatError", "DataError", "GraphError", "SettingsError", "TrainingError"],
    "bvat.estimator.node_classifier": ["NodeClassifier"],
    "bvat.graph": ["Graph"],
    "bvat.models": ["APPNP", "GAT", "GCN", "MLP", "SGC", "GraphSAGE"],
    "bvat.models.options": ["Options", "option"],
    "bvat.models.table": ["Model"],
    "bvat.models.wrapped": ["wrap"],
    "bvat.perturb": ["FLAG", "GRAND", "OBVAT", "SBVAT", "VAT", "Consistency", "Random", "Regulariser",
                     "entropy"],
    "bvat.perturb.methods": ["MethodRow", "RegulariserOptions"],
    "bvat.report.plots": ["plot"],
    "bvat.runs.run": ["RunOptions", "run"],
    "bvat.training.callbacks": ["Callback"],
    "bvat.training.loop": ["TrainedModel", "predict", "train"],
    "bvat.training.settings": ["Settings", "preset"],
    "bvat.training.trackers": ["MLflowLogger", "TensorBoardLogger", "WandbLogger"],
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "APPNP", "FLAG", "GAT", "GCN", "GRAND", "MLP", "OBVAT", "SBVAT", "SGC", "VAT", "Baseline", "BvatError",
    "Callback", "Consistency", "DataError", "DatasetRow", "Graph", "GraphError", "GraphSAGE", "MLflowLogger",
    "MethodRow", "Model", "NodeClassifier", "Options", "Random", "Regulariser", "RegulariserOptions",
    "RunOptions", "Settings", "SettingsError", "TensorBoardLogger", "TrainedModel", "TrainingError",
    "WandbLogger", "__version__", "certify", "entropy", "from_networkx", "from_pyg", "from_scipy", "load",
    "option", "plot", "predict", "preset", "register", "run", "synthetic_graph", "to_pyg", "to_scipy",
    "train", "wrap",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'bvat' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


# charts are above the packages whose objects they show: only here both are known
Plottable.draw = staticmethod(lambda thing, **options: __getattr__("plot")(thing, **options))


def __dir__() -> list[str]:
    return sorted(__all__)
