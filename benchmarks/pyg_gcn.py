"""Our GCN and the GCN of torch_geometric, on one graph.

Both take the same step: two layers without bias, dropout before each, cross-entropy on the training nodes,
backward, Adam with L2 on the first layer; and the same evaluation after it. torch_geometric keeps the
normalised adjacency (``cached=True``) and gets dense features, as is usual, unless they would not fit: then a
torch CSR tensor.

python benchmarks/pyg_gcn.py cora citeseer pubmed nell --out results/bench/pyg.json
"""

from __future__ import annotations

import argparse
import importlib
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bvat.bench.measure import Action, Budget, epoch_action, interleave, machine, settings_of
from bvat.data import load
from bvat.data.files import write_json
from bvat.engine.sparse import SparseMatrix
from bvat.graph import Graph
from bvat.store.pool import thread_count
from bvat.training.provenance import package_versions
from bvat.training.settings import Settings, short_name
from bvat.training.trained import accuracy

BUDGET = Budget(warmup=2, rounds=100, seconds=12.0)
DENSE_AT_MOST_GB = 2.0
"""Features that would take more than this as a dense matrix are passed as a torch CSR tensor."""
SETTLE_BELOW_MS = 100.0


def import_pyg() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # raised by its own imports
        module = importlib.import_module("torch_geometric")
        importlib.import_module("torch_geometric.nn")
        importlib.import_module("torch_geometric.utils")
    return module


class PygGCN(nn.Module):
    """Two ``GCNConv`` layers, as in torch_geometric's own example, without biases.

    Shapes: x (N, D) dense or CSR; edges (2, E) or a sparse (N, N); result (N, C).
    """

    def __init__(self, pyg: Any, features: int, classes: int, settings: Settings) -> None:
        super().__init__()
        options: dict[str, Any] = {"cached": True, "bias": False}
        self.first = pyg.nn.GCNConv(features, settings.hidden, **options)
        self.second = pyg.nn.GCNConv(settings.hidden, classes, **options)
        self.dropout = settings.dropout

    def forward(self, x: Tensor, edges: Any) -> Tensor:
        hidden = self.first(self._dropped(x), edges).relu()
        hidden = F.dropout(hidden, self.dropout, self.training)
        logits: Tensor = self.second(hidden, edges)
        return logits

    def _dropped(self, x: Tensor) -> Tensor:
        if x.layout == torch.strided:
            return F.dropout(x, self.dropout, self.training)
        values = F.dropout(x.values(), self.dropout, self.training)
        return torch.sparse_csr_tensor(
            x.crow_indices(), x.col_indices(), values, size=x.shape, check_invariants=False
        )


def measure_pyg(graph: Graph, dataset: str, budget: Budget = BUDGET) -> dict[str, Any]:
    """Return the times of our GCN and of torch_geometric's in its two forms.

    Returns:
        ``{"ours": times, "edge_index": times, "sparse": times, "features": "dense" or "sparse"}`` with times
        as returned by :meth:`Times.summary`.
    """
    pyg = import_pyg()
    settings = settings_of(dataset, "gcn")
    x, layout = pyg_features(graph)
    coo = graph.adjacency.to_scipy().tocoo()
    edge_index = torch.stack([torch.from_numpy(coo.row.copy()), torch.from_numpy(coo.col.copy())]).long()
    actions = {"ours": epoch_action(graph, settings)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch: CSR tensors are in beta
        sparse, form = sparse_form(pyg, edge_index, graph.num_nodes)
        for name, edges in (("edge_index", edge_index), ("sparse", sparse)):
            actions[name] = _action(pyg, graph, settings, x, edges)
        times = interleave(actions, budget, settle_below_ms=SETTLE_BELOW_MS)
    result: dict[str, Any] = {name: each.summary() for name, each in times.items()}
    return {**result, "features": layout, "sparse_form": form}


def pyg_features(graph: Graph, dense_at_most_gb: float = DENSE_AT_MOST_GB) -> tuple[Tensor, str]:
    """Return the features for torch_geometric, (N, D), and "dense" or "sparse"."""
    x = graph.features
    if not isinstance(x, SparseMatrix):
        return x.to_dense(), "dense"
    if x.shape[0] * x.shape[1] * x.values.element_size() <= dense_at_most_gb * 1e9:
        return x.to_dense(), "dense"
    csr = torch.sparse_csr_tensor(x.crow, x.col, x.values, size=x.shape, check_invariants=False)
    return csr, "sparse"


def sparse_form(pyg: Any, edge_index: Tensor, nodes: int) -> tuple[Any, str]:
    """Return the adjacency (N, N) in the best sparse form installed for torch_geometric, and its name."""
    if getattr(importlib.import_module("torch_geometric.typing"), "WITH_TORCH_SPARSE", False):
        tensor = importlib.import_module("torch_sparse").SparseTensor
        source, target = edge_index
        return tensor(row=target, col=source, sparse_sizes=(nodes, nodes)), "torch_sparse.SparseTensor"
    return pyg.utils.to_torch_csr_tensor(edge_index, size=(nodes, nodes)), "torch CSR tensor"


def _action(pyg: Any, graph: Graph, settings: Settings, x: Tensor, edges: Any) -> Action:
    """Return an action that runs one epoch with torch_geometric and returns the time of its step."""
    model = PygGCN(pyg, graph.num_features, graph.num_classes, settings)
    groups: list[dict[str, Any]] = [
        {"params": list(model.first.parameters()), "weight_decay": settings.weight_decay},
        {"params": list(model.second.parameters())},
    ]
    optimizer = torch.optim.Adam(groups, lr=settings.lr, fused=True)
    labels = graph.labels[graph.train]

    def epoch() -> float:
        started = time.perf_counter()
        model.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, edges).index_select(0, graph.train), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        float(loss.detach())
        step = 1000 * (time.perf_counter() - started)
        model.eval()
        with torch.no_grad():
            logits = model(x, edges)
        for nodes in (graph.train, graph.val, graph.test):
            accuracy(logits, graph, nodes)
        return step

    return epoch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with thread_count(1):
        found = {short_name(name): measure_pyg(load(name), short_name(name)) for name in options.datasets}
        about = {"versions": package_versions(("torch", "torch_geometric")), "machine": machine()}
    over = {
        name: {form: row[form]["epoch_ms"] / row["ours"]["epoch_ms"] for form in ("edge_index", "sparse")}
        for name, row in found.items()
    }
    write_json(options.out, {"pyg": found, "over_ours": over, **about})


if __name__ == "__main__":
    main()
