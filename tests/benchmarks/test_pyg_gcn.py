from __future__ import annotations

import pytest
import torch

from bvat.bench.measure import Budget, settings_of
from bvat.data import synthetic_graph
from bvat.engine.sparse import SparseMatrix
from bvat.graph import Graph
from bvat.training.state import build_model
from pyg_gcn import PygGCN, import_pyg, measure_pyg, pyg_features, sparse_form


@pytest.fixture(scope="module")
def tiny() -> Graph:
    return synthetic_graph(nodes=60, edges=150, features=20, classes=3, words_per_node=5, train_per_class=4)


@pytest.mark.parametrize("sparse_x", [False, True])
@pytest.mark.parametrize("form", ["edge_index", "sparse"])
def test_both_sides_are_the_same_model(tiny: Graph, form: str, sparse_x: bool) -> None:
    pytest.importorskip("torch_geometric")
    pyg = import_pyg()
    settings = settings_of("tiny", "gcn")
    ours = build_model(settings, tiny.num_features, tiny.num_classes).eval()
    theirs = PygGCN(pyg, tiny.num_features, tiny.num_classes, settings).eval()
    weights = dict(ours.named_parameters())
    with torch.no_grad():
        theirs.first.lin.weight.copy_(weights["weights.0"].t())
        theirs.second.lin.weight.copy_(weights["weights.1"].t())
    edges = torch.stack([tiny.adjacency.rows, tiny.adjacency.col.long()])
    if form == "sparse":
        with torch.sparse.check_sparse_tensor_invariants(True):
            edges = sparse_form(pyg, edges, tiny.num_nodes)[0]
    x, layout = pyg_features(tiny, dense_at_most_gb=0.0 if sparse_x else 2.0)
    assert layout == ("sparse" if sparse_x else "dense")
    assert sum(p.numel() for p in theirs.parameters()) == sum(p.numel() for p in ours.parameters())
    torch.testing.assert_close(theirs(x, edges), ours(tiny), atol=1e-6, rtol=1e-5)


def test_both_forms_and_ours_are_measured(tiny: Graph) -> None:
    pytest.importorskip("torch_geometric")
    measured = measure_pyg(tiny, "tiny", Budget(warmup=1, rounds=2, seconds=0.0, min_rounds=2))
    for name in ("ours", "edge_index", "sparse"):
        assert 0 < measured[name]["step_ms_p10"] <= measured[name]["epoch_ms"]
    assert measured["features"] == "dense"
    assert isinstance(tiny.features, SparseMatrix)  # what torch_geometric gets does not change the graph
