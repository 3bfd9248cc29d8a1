"""The graph: its matrices, the parts of it that models read, validation and repair."""

from bvat.engine.dense import DenseMatrix
from bvat.engine.sparse import SparseMatrix, SymmetricMatrix
from bvat.graph.graph import Graph
from bvat.graph.inputs import GraphInputs, Subgraph
from bvat.graph.neighbours import Latent
from bvat.graph.targets import UNKNOWN, targets_of

__all__ = [
    "UNKNOWN",
    "DenseMatrix",
    "Graph",
    "GraphInputs",
    "Latent",
    "SparseMatrix",
    "Subgraph",
    "SymmetricMatrix",
    "targets_of",
]
