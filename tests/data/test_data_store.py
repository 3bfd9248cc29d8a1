from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bvat.data import load_graph, save_graph, synthetic_graph
from bvat.data.store import graph_from_bytes, graph_to_bytes
from bvat.engine.sparse import SparseMatrix
from bvat.errors import DataError
from bvat.graph import Graph

GRAPH = synthetic_graph(60, 150, features=12, classes=3, words_per_node=4, train_per_class=3, seed=1)


def assert_same(one: Graph, other: Graph) -> None:
    for name in ("labels", "train", "val", "test"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    for name in ("class_names", "node_names", "name", "validation", "repairs"):
        assert getattr(one, name) == getattr(other, name), name
    for a, b in ((one.features, other.features), (one.adjacency, other.adjacency)):
        assert type(a) is type(b)
        assert a.shape == b.shape
        parts = ("crow", "col", "values") if isinstance(a, SparseMatrix) else ("values",)
        assert all(torch.equal(getattr(a, part), getattr(b, part)) for part in parts)


def _dense() -> Graph:
    names = tuple(f"knoten {k}\0ß" for k in range(60))
    return replace(
        GRAPH, features=GRAPH.features.to_dense().double(), node_names=names, repairs={"self_loops": 3}
    )


@pytest.mark.parametrize("graph", [GRAPH, _dense()], ids=["sparse", "dense"])
def test_a_saved_graph_comes_back(graph: Graph, tmp_path: Path) -> None:
    save_graph(graph, tmp_path / "g.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["g.npz"]
    assert_same(load_graph(tmp_path / "g.npz"), graph)


def test_a_cut_file_is_refused() -> None:
    content = graph_to_bytes(GRAPH)
    for share in (0.0, 0.3, 0.99):
        with pytest.raises(DataError, match=r"g\.npz is damaged"):
            graph_from_bytes(content[: int(share * len(content))], "g.npz")


def test_places_that_cannot_be_written_or_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"does not end in \.npz"):
        save_graph(GRAPH, tmp_path / "g.txt")
    with pytest.raises(DataError, match="does not exist: create it first"):
        save_graph(GRAPH, tmp_path / "no" / "g.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(DataError, match="cannot be written"):
        save_graph(GRAPH, tmp_path / "folder.npz")
    with pytest.raises(DataError, match="cannot be read"):
        load_graph(tmp_path / "none.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.npz"]
