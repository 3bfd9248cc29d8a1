"""Whatever the files contain, the result is a Graph or a GraphError."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from reader_files import EDGES, NODES, write

from bvat import Graph
from bvat.data import load
from bvat.errors import GraphError

fuzz = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)

cell = st.sampled_from(
    ["", "n1", "n2", "n3", "train", "val", "test", "1", "-1", "0.5", "nan", "inf", "1e999", "1_0", " ", "x",
     "y", '"', '""', '"a,b"', '"a\nb"', "é", "\0", "\r", "\u2028"]
)  # fmt: skip
rows = st.lists(st.lists(cell, max_size=5).map(",".join), max_size=6).map("\n".join)
node_file = st.sampled_from(["id,label\n", "id,label,split\n", "id,label,a\n", "label,split,id,b\n", ""])
edge_file = st.sampled_from(["source,target\n", "source,target,weight\n", ""])


def graph_or_error(path: Path, **options: Any) -> None:
    """Reading gives a graph with one row per node, or a GraphError of one line."""
    graph: Graph | GraphError
    try:
        graph = load(path, **options)
    except GraphError as error:
        graph = error
    if isinstance(graph, GraphError):
        assert str(path) in str(graph)
        assert ": " in str(graph)
    else:
        assert graph.num_classes >= 2


@fuzz
@given(st.tuples(node_file, rows).map("".join), st.tuples(edge_file, rows).map("".join), st.booleans())
def test_rows(tmp_path: Path, nodes: str, edges: str, text: bool) -> None:
    graph_or_error(write(tmp_path / "mine", nodes, edges), text="a" if text else None)


@fuzz
@given(st.binary(max_size=60), st.sampled_from(["nodes", "edges"]), st.integers(0, 40), st.booleans())
def test_bytes_anywhere(tmp_path: Path, junk: bytes, file: str, place: int, packed: bool) -> None:
    files = {"nodes": NODES.encode(), "edges": EDGES.encode()}
    files[file] = files[file][:place] + junk + files[file][place:]
    if not packed:
        graph_or_error(write(tmp_path / "plain", **files))
    else:
        files = {f"{name}__csv__gz": gzip.compress(content) for name, content in files.items()}
        files[f"{file}__csv__gz"] = files[f"{file}__csv__gz"][:place] + junk
        graph_or_error(write(tmp_path / "packed", None, None, **files))


def _npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=True, **arrays)
    return buffer.getvalue()


BENCHMARK = ["adj_data", "adj_indices", "adj_shape", "labels", "attr_matrix", "attr_data", "class_names"]
array = st.one_of(
    st.lists(st.integers(-2, 6), max_size=7).map(np.array),
    st.lists(st.floats(width=32), max_size=6).map(np.array),
    st.lists(st.sampled_from(["x", "y", ""]), max_size=5).map(np.array),
    st.sampled_from([np.array(3), np.zeros((5, 2)), np.zeros((0, 5)), np.array([None]), np.array([5, 2**40]),
                     np.array([1j] * 5), np.array(b"csr"), np.array([2**63], np.uint64), np.arange(6)]),
)  # fmt: skip


@fuzz
@given(
    st.dictionaries(st.sampled_from(["format", "shape", "data", "indices", "indptr", "row", "col"]), array)
)
def test_feature_arrays(tmp_path: Path, changed: dict[str, Any]) -> None:
    x = sp.csr_array(np.eye(5))
    good = {
        "format": np.array(b"csr"),
        "shape": x.shape,
        "data": x.data,
        "indices": x.indices,
        "indptr": x.indptr,
    }
    graph_or_error(write(tmp_path / "mine", features__npz=_npz(**{**good, **changed})))


@fuzz
@given(st.dictionaries(st.sampled_from(BENCHMARK), array))
def test_benchmark_arrays(tmp_path: Path, changed: dict[str, Any]) -> None:
    a = sp.csr_array(np.eye(5)[[1, 2, 3, 4, 0]])
    good = {f"adj_{part}": getattr(a, part) for part in ("data", "indices", "indptr", "shape")}
    path = tmp_path / "mine.npz"
    path.write_bytes(_npz(**{**good, "labels": np.array([0, 1, 0, 1, -1]), **changed}))
    graph_or_error(path)


@fuzz
@given(st.binary(max_size=40), st.integers(0, 400), st.booleans())
def test_damaged_archives(tmp_path: Path, junk: bytes, place: int, cut: bool) -> None:
    x = _npz(
        format=np.array(b"csr"),
        shape=np.array([5, 5]),
        data=np.ones(5),
        indices=np.arange(5),
        indptr=np.arange(6),
    )
    damaged = x[:place] + junk + (b"" if cut else x[place + len(junk) :])
    graph_or_error(write(tmp_path / "mine", features__npz=damaged))


@fuzz
@given(st.binary(max_size=40), st.integers(0, 2500), st.booleans())
def test_damaged_parquet(tmp_path: Path, junk: bytes, place: int, cut: bool) -> None:
    buffer = io.BytesIO()
    columns = {
        "id": ["n1", "n2", "n3", "n4", "n5"],
        "label": ["x", "y", None, "x", "y"],
        "a": [1.0, 2, 3, 4, 5],
    }
    parquet.write_table(pa.table(columns), buffer)
    x = buffer.getvalue()
    damaged = x[:place] + junk + (b"" if cut else x[place + len(junk) :])
    graph_or_error(write(tmp_path / "mine", None, nodes__parquet=damaged))
