from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
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
        if isinstance(a, SparseMatrix):
            assert isinstance(b, SparseMatrix)
            assert a.shape == b.shape
            assert torch.equal(a.crow, b.crow)
            assert torch.equal(a.col, b.col)
            assert torch.equal(a.values, b.values)
        else:
            assert torch.equal(a.values, b.values)


def _dense() -> Graph:
    assert isinstance(GRAPH.features, SparseMatrix)
    names = tuple(f"knoten {k}\0ß" for k in range(60))
    return replace(
        GRAPH, features=GRAPH.features.to_dense().double(), node_names=names, repairs={"self_loops": 3}
    )


@pytest.mark.parametrize("graph", [GRAPH, _dense()], ids=["sparse", "dense"])
def test_a_saved_graph_comes_back(graph: Graph, tmp_path: Path) -> None:
    save_graph(graph, tmp_path / "g.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["g.npz"]
    assert_same(load_graph(tmp_path / "g.npz"), graph)


def test_no_flipped_byte_gives_another_graph() -> None:
    content = graph_to_bytes(GRAPH)
    refused = 0
    for place in range(0, len(content), 41):
        broken = bytearray(content)
        broken[place] ^= 0x10
        try:
            assert_same(graph_from_bytes(bytes(broken), "g.npz"), GRAPH)
        except DataError:
            refused += 1
    assert refused > len(content) / 41 / 3


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_cut_file_is_refused(share: float) -> None:
    content = graph_to_bytes(GRAPH)
    with pytest.raises(DataError, match=r"g\.npz is damaged"):
        graph_from_bytes(content[: int(share * len(content))], "g.npz")


def _changed(**changes: object) -> bytes:
    with np.load(io.BytesIO(graph_to_bytes(GRAPH))) as stored:
        arrays = {key: stored[key] for key in stored.files}
    about = json.loads(arrays["about"].tobytes())
    for key, value in changes.items():
        name = key.replace("__", ".")
        if name in about:
            about[name] = value
        else:
            arrays[name] = value(arrays[name].copy()) if callable(value) else value
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _set(place: int, value: int):  # type: ignore[no-untyped-def]
    def change(array):  # type: ignore[no-untyped-def]
        array[place] = value
        return array

    return change


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(_changed(format=99), "has format 99", id="another format"),
        pytest.param(_changed(adjacency__col=_set(0, 10**6)), "is damaged", id="column out of range"),
        pytest.param(_changed(adjacency__crow=_set(1, 10**6)), "is damaged", id="row pointer out of range"),
        pytest.param(
            _changed(
                adjacency__crow=lambda crow: np.append(_set(1, 10**6)(0 * crow[:-1]), crow[:1]),
                adjacency__col=lambda col: col[:0],
                adjacency__values=lambda values: values[:0],
            ),
            "is damaged",
            id="row pointers that return to 0",
        ),
        pytest.param(_changed(adjacency__values=_set(0, 7)), "not symmetric", id="not symmetric"),
        pytest.param(_changed(features__values=_set(0, np.nan)), "NaN", id="NaN"),
        pytest.param(_changed(labels=_set(0, 9)), "label 9", id="label out of range"),
        pytest.param(_changed(features_shape=[60, 3]), "is damaged", id="too few columns"),
        pytest.param(_changed(labels=np.array([None] * 60)), "is damaged", id="a pickle inside"),
        pytest.param(_changed(class_names=None), "is damaged", id="no class names"),
    ],
)
def test_contents_that_make_no_graph_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        graph_from_bytes(content, "g.npz")


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
