"""Weights of edges from every source, down to the models that use them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import bvat
import own_models
from bvat.testing.models import ModelCase

ENDS = np.array([[0, 1, 2, 3, 4, 5, 1], [1, 2, 3, 4, 5, 0, 4]])
WEIGHTS = np.array([2.0, 0.5, 3, 1, 4, 1, 0.25])
LABELS = np.array([0, 1, 0, 1, 0, 1])
FEATURES = np.random.default_rng(0).random((6, 3))


def from_csv(folder: Path, weights: np.ndarray) -> bvat.Graph:
    rows = [f"n{k},{LABELS[k]},{','.join(map(str, row))}" for k, row in enumerate(FEATURES)]
    (folder / "nodes.csv").write_text("\n".join(["id,label,a,b,c", *rows]))
    edges = [f"n{a},n{b},{w}" for a, b, w in zip(*ENDS, weights, strict=True)]
    (folder / "edges.csv").write_text("\n".join(["source,target,weight", *edges]))
    return bvat.load(folder)


def from_npz(folder: Path, weights: np.ndarray) -> bvat.Graph:
    matrix = sp.csr_array((weights, tuple(ENDS)), shape=(6, 6))
    parts = {f"adj_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr", "shape")}
    np.savez(folder / "mine.npz", labels=LABELS, attr_matrix=FEATURES, **parts)
    return bvat.load(folder / "mine.npz")


def from_pyg(folder: Path, weights: np.ndarray) -> bvat.Graph:
    data = pytest.importorskip("torch_geometric.data")
    both, twice = np.concatenate([ENDS, ENDS[::-1]], 1), np.concatenate([weights, weights])
    return bvat.from_pyg(
        data.Data(
            x=torch.tensor(FEATURES, dtype=torch.float32), edge_index=torch.tensor(both),
            edge_weight=torch.tensor(twice), y=torch.tensor(LABELS),
        )
    )  # fmt: skip


@pytest.mark.parametrize("source", [from_csv, from_npz, from_pyg])
def test_weights_reach_every_model_that_uses_them(source, tmp_path: Path) -> None:
    graph, plain = (source(tmp_path, weights) for weights in (WEIGHTS, np.ones(7)))
    dense = np.eye(6)
    dense[tuple(ENDS)] = dense[tuple(ENDS[::-1])] = WEIGHTS
    scale = dense.sum(1) ** -0.5
    np.testing.assert_allclose(graph.propagation.to_dense(), scale[:, None] * dense * scale, rtol=1e-6)
    assert torch.equal(graph.features.to_dense(), plain.features.to_dense())
    wide, narrow = (each.to(dtype=torch.float64) for each in (graph, plain))
    for name in ("gcn", "appnp", "random-propagation", "sgc", "monet", "sage"):
        model = ModelCase(name, wide).build().eval()
        assert not torch.allclose(model(wide), model(narrow)), name
    for name in ("gat", "gpnn"):  # they say that they do not
        model = ModelCase(name, wide).build().eval()
        assert torch.equal(model(wide), model(narrow)), name
    module = bvat.wrap(own_models.Weighted(3, 2).double().eval())
    assert not torch.allclose(module(wide), module(narrow))
