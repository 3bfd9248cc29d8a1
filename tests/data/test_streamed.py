"""Parquet folders that cannot be streamed: a sentence names the file, the row and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from bvat.data.readers import features
from bvat.data.readers.parquet_table import ParquetTable
from bvat.data.readers.streamed import scratch_folder, stream_folder
from bvat.errors import GraphError
from parquet_helpers import columns, write_parquet


def streamed(folder: Path) -> None:
    with scratch_folder(folder.with_name("parts")) as scratch:
        stream_folder(folder, scratch)


def put(table: str, column: str, row: int, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    """Return what changes a cell."""

    def change(nodes: dict[str, Any], edges: dict[str, Any]) -> None:
        cells = nodes if table == "nodes" else edges
        cells[column] = list(cells[column])
        cells[column][row] = value

    return change


def drop(table: str, column: str) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda nodes, edges: (nodes if table == "nodes" else edges).pop(column)


def retype(column: str, kind: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda nodes, edges: edges.update({column: pa.array(edges[column]).cast(kind)})


BAD: dict[str, tuple[Callable[..., Any], str]] = {
    "no source": (drop("edges", "source"), r"edges\.parquet: there is no column 'source', only"),
    "no id": (drop("nodes", "id"), r"nodes\.parquet: there is no column 'id', only"),
    "no label": (drop("nodes", "label"), r"nodes\.parquet: there is no column 'label', only"),
    "unknown id": (
        put("edges", "target", 333, 10**6),
        r"row 334, column 'target': '1000000' is not",
    ),
    "negative id": (
        put("edges", "source", 70, -(2**63)),
        r"row 71, column 'source': '-922337203685",
    ),
    "missing end": (put("edges", "source", 130, None), r"row 131, column 'source': '' is not an id in"),
    "missing id": (put("nodes", "id", 77, None), r"nodes\.parquet, row 78, column 'id': the id is empty"),
    "id twice": (
        put("nodes", "id", 66, 1),
        r"row 67, column 'id': '1' is already the id of",
    ),
    "negative weight": (
        put("edges", "weight", 99, -1.5),
        r"row 100, column 'weight': the weight -1\.5 is",
    ),
    "tiny weight": (
        put("edges", "weight", 98, 1e-40),
        r"row 99, column 'weight': the weight 1e-40 is",
    ),
    "no weight": (put("edges", "weight", 97, None), r"row 98, column 'weight': the cell is empty"),
    "NaN": (put("edges", "weight", 96, float("nan")), r"row 97, column 'weight': nan is not finite"),
    "feature": (
        put("nodes", "x1", 80, float("inf")),
        r"nodes\.parquet, row 81, column 'x1': inf is not",
    ),
    "floats": (retype("source", pa.float64()), r"column 'source': double is neither whole numbers nor text"),
}


@pytest.mark.parametrize("how", BAD)
def test_bad_content_is_one_sentence(how, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("bvat.data.readers.spill.ENTRIES", 64)
    change, message = BAD[how]
    nodes, edges = columns()
    change(nodes, edges)
    with pytest.raises(GraphError, match=message):
        streamed(write_parquet(tmp_path / "graph", nodes, edges))
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


def test_ids_as_text_are_refused_like_numbers(tmp_path) -> None:
    nodes, edges = columns(text=True)
    for cells, column, message in (
        (edges, "source", "row 4, column 'source': 'nobody' is not an id in"),
        (nodes, "id", "row 4, column 'id': '' is already|row 4, column 'id': the id is empty"),
    ):
        kept = cells[column][3]
        cells[column][3] = "nobody" if column == "source" else ""
        with pytest.raises(GraphError, match=message):
            streamed(write_parquet(tmp_path / "graph", nodes, edges))
        cells[column][3] = kept
    nodes["id"][5] = nodes["id"][2]
    with pytest.raises(GraphError, match=r"row 6, column 'id': 'n .*' is already the id of row 3"):
        streamed(write_parquet(tmp_path / "graph", nodes, edges))


def test_numbers_and_texts_are_the_same_ids(tmp_path) -> None:
    nodes, edges = columns()
    edges["source"] = [str(k) for k in edges["source"]]
    streamed(write_parquet(tmp_path / "graph", nodes, edges))


def test_files_that_are_missing_truncated_or_damaged(tmp_path) -> None:
    folder = write_parquet(tmp_path / "graph", *columns())
    whole = (folder / "edges.parquet").read_bytes()
    (folder / "edges.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(GraphError, match=r"edges\.parquet is not a readable Parquet file .*: write it again"):
        streamed(folder)
    start = len(whole) // 3
    (folder / "edges.parquet").write_bytes(whole[:start] + bytes(64) + whole[start + 64 :])
    with pytest.raises(GraphError, match=r"edges\.parquet"):
        streamed(folder)
    (folder / "edges.parquet").unlink()
    with pytest.raises(GraphError, match=r"has no edges\.parquet, which --stream reads"):
        streamed(folder)


def test_a_matrix_of_another_size_or_with_gaps_is_refused(tmp_path) -> None:
    folder = write_parquet(tmp_path / "graph", *columns(features=0))
    np.save(folder / "features.npy", np.ones((89, 2)))
    with pytest.raises(GraphError, match=r"has shape \(89, 2\), but there are 90 nodes"):
        streamed(folder)
    matrix = np.ones((90, 2))
    matrix[60, 1] = np.nan
    np.save(folder / "features.npy", matrix)
    with pytest.raises(GraphError, match=r"is NaN, infinite or beyond 1e\+30 in row 61, column 2"):
        streamed(folder)
    np.save(folder / "features.npy", np.array([[object()]] * 90), allow_pickle=True)
    with pytest.raises(GraphError, match="Python objects, which can run code"):
        streamed(folder)


@pytest.mark.parametrize("cells", [10, 2**22])
def test_moments_in_blocks_are_those_of_numpy(cells, monkeypatch) -> None:
    monkeypatch.setattr(features, "_CELLS", cells)
    matrix = np.random.default_rng(0).normal(3, 5, (1000, 3)).astype(np.float32)
    dense = matrix.astype(np.float64)
    mean, deviation, largest = features._moments(matrix)
    assert (mean == dense.mean(axis=0)).all()
    assert (deviation == dense.std(axis=0)).all()
    assert (largest == np.abs(dense).max(axis=0)).all()


def test_what_was_read_of_a_table_does_not_stay_in_memory(tmp_path) -> None:
    numbers = np.random.default_rng(0).integers(0, 2**62, 2**20)
    parquet.write_table(pa.table({"a": numbers}), tmp_path / "a.parquet", row_group_size=2**15)
    table, start = ParquetTable(tmp_path / "a.parquet"), pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - start for _ in table.batches((), ["a"], cells=2**15)]
    assert len(held) == 32
    assert max(held) < 2**21  # of 2^23 bytes
