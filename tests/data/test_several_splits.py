"""Graphs with several given splits: columns, masks of archives and of PyG, and how they are saved."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bvat.data import load, save_graph
from bvat.data.convert import from_pyg
from bvat.errors import GraphError
from cli_helpers import bvat

NODES, SPLITS = 30, 3
PARTS = ("train", "val", "test")


@pytest.fixture
def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    which = np.stack([rng.permutation(NODES) % 3 for _ in range(SPLITS)])
    return {
        "edges": rng.integers(0, NODES, (60, 2)),
        "node_features": rng.random((NODES, 4)),
        "node_labels": np.arange(NODES) % 2,
        **{f"{part}_masks": which == k for k, part in enumerate(PARTS)},
    }


def expected(arrays: dict[str, Any]) -> torch.Tensor:
    marks = sum((k + 1) * arrays[f"{part}_masks"] for k, part in enumerate(PARTS))
    return torch.from_numpy(marks).to(torch.int8)


def test_heterophilous_archive(arrays: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "h.npz", **arrays)
    graph = load(tmp_path / "h.npz")
    assert graph.num_splits == SPLITS
    assert torch.equal(graph.splits, expected(arrays))
    for k in range(SPLITS):
        split = graph.with_split(k)
        for part in PARTS:
            assert getattr(split, part).tolist() == np.flatnonzero(arrays[f"{part}_masks"][k]).tolist()
    given = {tuple(sorted(pair)) for pair in arrays["edges"].tolist() if pair[0] != pair[1]}
    assert graph.num_edges == len(given)
    assert (graph.adjacency.values == 1).all()
    turned = {name: value.T if "mask" in name else value for name, value in arrays.items()}
    np.savez(tmp_path / "t.npz", **turned)
    assert torch.equal(load(tmp_path / "t.npz").splits, graph.splits)
    save_graph(graph, tmp_path / "saved.npz")
    assert torch.equal(load(tmp_path / "saved.npz").splits, graph.splits)
    with pytest.raises(GraphError, match="has 3 splits: use 0 to 2"):
        graph.with_split(3)


def test_faults_of_an_archive(arrays: dict[str, Any], tmp_path: Path) -> None:
    for name, wrong, message in (
        ("val_masks", arrays["val_masks"][:2], "different numbers of splits"),
        ("test_masks", arrays["test_masks"][:, :9], "one value, true or false, per node"),
        ("edges", arrays["edges"] + 10, "a node that is not between 0 and 29"),
        ("edges", arrays["edges"][:, 0], "give pairs of node numbers"),
    ):
        np.savez(tmp_path / "wrong.npz", **{**arrays, name: wrong})
        with pytest.raises(GraphError, match=message):
            load(tmp_path / "wrong.npz")


def test_columns(arrays: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = np.array(["", *PARTS])[expected(arrays).numpy()]
    lines = ["id,label,a,split_0,b,split_1,split_2"]
    x = arrays["node_features"]
    lines += [
        f"n{k},c{k % 2},{x[k, 0]},{words[0, k]},{x[k, 1]},{words[1, k]},{words[2, k]}" for k in range(NODES)
    ]
    (tmp_path / "nodes.csv").write_text("\n".join(lines))
    (tmp_path / "edges.csv").write_text("source,target\nn1,n2\n")
    graph = load(tmp_path)
    assert graph.num_features == 2
    assert torch.equal(graph.splits, expected(arrays))
    assert graph.train.tolist() == graph.with_split(0).train.tolist()
    for before, after, message in (
        ("train", "training", "'training' is not part of a split"),
        ("split_2", "split_x", "column 'split_x'"),  # then it is no split, and no number
    ):
        (tmp_path / "nodes.csv").write_text("\n".join(lines).replace(before, after, 1))
        code, _, said = bvat(["compare", str(tmp_path), "--splits", "given"], capsys)
        assert code == 2
        assert message in said
        assert said.count("\n") == 1
    empty = [line.rsplit(",", 1)[0] + "," for line in lines]
    (tmp_path / "nodes.csv").write_text("\n".join([lines[0], *empty[1:]]))
    with pytest.raises(GraphError, match=r"column 'split_2': the column is empty"):
        load(tmp_path)


def test_masks_of_pyg(arrays: dict[str, Any]) -> None:
    masks = {f"{part}_mask": torch.from_numpy(arrays[f"{part}_masks"].T) for part in PARTS}
    content = {
        "x": torch.from_numpy(arrays["node_features"]).float(),
        "y": torch.from_numpy(arrays["node_labels"]),
        "edge_index": torch.from_numpy(np.concatenate([arrays["edges"], arrays["edges"][:, ::-1]]).T.copy()),
        **masks,
    }
    data = SimpleNamespace(**content, num_nodes=NODES, to_dict=lambda: content)
    graph = from_pyg(data, mask=1)
    assert torch.equal(graph.splits, expected(arrays))
    assert torch.equal(graph.train, graph.with_split(1).train)


def test_wrong_marks_are_refused(arrays: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "h.npz", **arrays)
    graph = load(tmp_path / "h.npz")
    for wrong in (expected(arrays)[:, :4], expected(arrays) + 3, expected(arrays).long()):
        with pytest.raises(GraphError, match="splits must be int8 of shape"):
            dataclasses.replace(graph, splits=wrong)
