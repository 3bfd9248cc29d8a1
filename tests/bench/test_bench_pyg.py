from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch

from bvat.bench.plan import BenchPlan, Budget, settings_of
from bvat.bench.pyg import MISSING, PygGCN, import_pyg, measure_pyg, pyg_features, sparse_form
from bvat.bench.run import run_bench
from bvat.data import synthetic_graph
from bvat.engine.sparse import SparseMatrix
from bvat.graph import Graph
from bvat.training.state import build_model


@pytest.fixture(scope="module")
def tiny() -> Graph:
    return synthetic_graph(nodes=60, edges=150, features=20, classes=3, words_per_node=5, train_per_class=4)


@pytest.mark.parametrize("sparse_x", [False, True])
@pytest.mark.parametrize("form", ["edge_index", "sparse"])
def test_both_sides_are_the_same_model(tiny: Graph, form: str, sparse_x: bool) -> None:
    pyg = import_pyg()
    if pyg is None:
        pytest.skip("torch_geometric is not installed")
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
    if import_pyg() is None:
        pytest.skip("torch_geometric is not installed")
    measured = measure_pyg(tiny, "tiny", Budget(warmup=1, rounds=2, seconds=0.0, min_rounds=2))
    for name in ("ours", "edge_index", "sparse"):
        assert 0 < measured[name]["step_ms_p10"] <= measured[name]["epoch_ms"]
    assert measured["features"] == "dense"
    assert isinstance(tiny.features, SparseMatrix)  # what torch_geometric gets does not change the graph


def test_without_torch_geometric_the_rest_is_measured(
    plan: BenchPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    results = run_bench(replace(plan, methods=("gcn", "obvat")), lambda _: None)
    assert results["pyg_gcn_epoch_ms"] == {"tiny": None}
    assert results["pyg"] == {"tiny": {"reason": MISSING}}
    assert results["skipped"] == [f"tiny, torch_geometric: {MISSING}"]
    assert results["ratios"]["pyg_over_ours"] == {"tiny": {}}
    assert results["epoch_ms"]["tiny"]["obvat"] > 0
