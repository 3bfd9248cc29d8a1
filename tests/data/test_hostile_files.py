"""Files that were not written by us: refused in a sentence, whatever is wrong with them."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from reader_files import EDGES, write

from bvat import from_scipy
from bvat.data import load, save_graph, synthetic_graph
from bvat.data.npz import read_npz
from bvat.data.store import graph_from_bytes, graph_to_bytes
from bvat.errors import DataError, GraphError, SettingsError, printable
from bvat.graph import Graph

ARRAYS = read_npz(
    graph_to_bytes(synthetic_graph(nodes=60, edges=90, features=20, classes=2, train_per_class=3))
)


def stored(method: int = zipfile.ZIP_STORED, **changed: Any) -> bytes:
    """Return a stored graph with other arrays; values of ``about`` are given as a dict."""
    about = {**json.loads(ARRAYS["about"].tobytes()), **changed.pop("about", {})}
    arrays = {**ARRAYS, **changed, "about": np.frombuffer(json.dumps(about).encode(), np.uint8)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, array in arrays.items():
            one = io.BytesIO()
            np.save(one, array)
            archive.writestr(f"{name}.npy", one.getvalue())
    return buffer.getvalue()


def flags(content: bytes, place: int, value: int) -> bytes:
    """Change a field of every entry in the directory of a zip file."""
    data = bytearray(content)
    start = data.find(b"PK\1\2")
    while start >= 0:
        data[start + place] = value
        start = data.find(b"PK\1\2", start + 4)
    return bytes(data)


@pytest.mark.parametrize(
    "content",
    [
        flags(stored(), 8, 1),  # encrypted: RuntimeError
        flags(stored(), 10, 97),  # an unknown compression: NotImplementedError
        stored(zipfile.ZIP_LZMA).replace(b"\x5d\x00\x00\x80", b"\xff\xff\xff\xff"),  # LZMAError
        stored(zipfile.ZIP_DEFLATED)[:70] + b"\xff" * 40 + stored(zipfile.ZIP_DEFLATED)[110:],  # zlib.error
        b"",
        b"PK\5\6" + b"\0" * 18,
    ],
)
def test_archives_that_cannot_be_unpacked(content: bytes) -> None:
    with pytest.raises(DataError, match=r"^x is damaged"):
        graph_from_bytes(content, "x")


def entry(name: str, place: int, value: float) -> dict[str, Any]:
    """Return an array with another entry."""
    array = ARRAYS[name].copy()
    array[place] = value
    return {name: array}


BACK = entry("adjacency.crow", 1, 10**6)["adjacency.crow"]
BACK[2:] = 0
"""Row pointers that return to 0."""


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"about": {"format": 99}}, "has format 99"),
        (entry("adjacency.col", 0, 10**6), "is damaged"),
        (entry("adjacency.crow", 1, 10**6), "is damaged"),
        ({"adjacency.crow": BACK, "adjacency.col": BACK[:0], "adjacency.values": np.ones(0)}, "is damaged"),
        (entry("adjacency.values", 0, 7), "not symmetric"),
        (entry("features.values", 0, np.nan), "NaN"),
        (entry("labels", 0, 9), "label 9"),
        ({"labels": np.array([None] * 60)}, "is damaged"),
        ({"about": {"features_shape": [60, 3]}}, "is damaged"),
        ({"about": {"class_names": None}}, "is damaged"),
    ],
)
def test_contents_that_make_no_graph_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        graph_from_bytes(stored(**changed), "x")


@pytest.mark.parametrize(
    "changed",
    [
        {"labels": ARRAYS["labels"].astype(float)},
        {"train": ARRAYS["train"][None]},
        {"adjacency.values": ARRAYS["adjacency.values"].astype(np.float16)},
        {"adjacency.values": ARRAYS["adjacency.values"].astype(int)},
        {"adjacency.values": ARRAYS["adjacency.values"].astype(complex)},
        {"features": np.ones((60, 20), int)},
        {"features": np.ones((60, 20), bool)},
        {"features": np.full((60, 20), 1e31, np.float32)},
        {"about": {"class_names": [1, 2]}},
        {"about": {"class_names": ["a", "a"]}},
        {"about": {"class_names": ["a", "\ud800"]}},
        {"about": {"name": None}},
        {"about": {"node_names": [1] * 60}},
        {"about": {"notes": [None]}},
        {"about": {"features_shape": [60, 2**31 - 1]}},
        {"about": {"features_shape": [60, 2**62]}},
        {"about": {"repairs": []}},
    ],
)
def test_odd_arrays_are_refused_before_training(changed: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        graph_from_bytes(stored(**changed), "x")


def test_an_npz_file_of_pickled_objects(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, graph=np.array([{}], object))
    with pytest.raises(GraphError, match=r"array 'graph': it contains Python objects, which can run code"):
        load(path, train_per_class=5)
    np.savez(path, x=np.ones(3), y=np.ones(2))
    with pytest.raises(DataError, match=r"holds the arrays 'x', 'y' but no graph: give a folder with"):
        load(path, train_per_class=5)
    save_graph(synthetic_graph(), path)
    with pytest.raises(SettingsError, match="has its own edges, split and features: remove train_per_class"):
        load(path, train_per_class=5)


def test_claims_are_compared_with_the_nodes_first(tmp_path: Path) -> None:
    entries = {"data": np.ones(1), "indices": np.zeros(1, np.int64), "indptr": np.array([0, 1, 1, 1, 1, 1])}

    def claims(rows: int, columns: int) -> bytes:
        buffer = io.BytesIO()
        np.savez(buffer, format=np.array(b"csr"), shape=np.array([rows, columns]), **entries)
        return buffer.getvalue()

    with pytest.raises(GraphError, match=r"features\.npz has shape \(2147483647, 3\), but there are 5 nodes"):
        load(write(tmp_path / "rows", features__npz=claims(2**31 - 1, 3)))
    with pytest.raises(GraphError, match="2,147,483,647 feature columns but only 1 entries"):
        load(write(tmp_path / "columns", features__npz=claims(5, 2**31 - 1)))


def test_a_class_for_each_node(tmp_path: Path) -> None:
    rows = "".join(f"n{k},class {k}\n" for k in range(2000))
    with pytest.raises(GraphError, match="2,000 classes for 2,000 labelled nodes"):
        load(write(tmp_path / "mine", f"id,label\n{rows}", "source,target\nn1,n2\n"))


def test_a_graph_without_labels_can_be_predicted(tmp_path: Path) -> None:
    known = load(write(tmp_path / "known"))
    bare = load(
        write(tmp_path / "bare", "id,label,a,b\nn1,,1,0.5\nn2,,2,0\nn3,,0,1\nn4,,3,2\nn5,,1,1\n"), like=known
    )
    assert bare.train.numel() == 0
    assert bare.class_names == known.class_names
    ring = sp.coo_array(np.eye(4)[[1, 2, 3, 0]])
    assert from_scipy(ring, np.eye(4), class_names=["a", "b"]).train.numel() == 0
    with pytest.raises(GraphError, match="no labels"):
        from_scipy(ring, np.eye(4))
    parts = {f"adj_{part}": getattr(ring.tocsr(), part) for part in ("data", "indices", "indptr", "shape")}
    np.savez(tmp_path / "b.npz", **parts, attr_matrix=np.ones((4, 2)))
    assert load(tmp_path / "b.npz", like=known).class_names == known.class_names


def test_names_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    nodes = 'id,label\n"a\x1b[31m",x\n"a\x1b[31m",y\n'
    with pytest.raises(GraphError) as caught:
        load(write(tmp_path / "a\x1b[2Jb", nodes, EDGES))
    assert str(caught.value).isprintable()
    assert printable("a\x1b[31m\nb\u202e") == "a\\x1b[31m\\nb\\u202e"


def test_graphs_need_numbers_of_one_precision(graph: Graph) -> None:
    with pytest.raises(GraphError, match="the features are float16 and the edge weights float32"):
        replace(graph, features=graph.features.to(dtype=torch.float16))
