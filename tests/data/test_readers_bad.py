"""Bad inputs, and the error message for each."""
# ruff: noqa: E501   the table has one row per input

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from reader_files import EDGES, NODES, write

from bvat.data import load
from bvat.errors import GraphError, SettingsError


def _saved(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=True, **arrays)
    return buffer.getvalue()


def _sparse(matrix: Any, kind: str = "csr") -> bytes:
    buffer = io.BytesIO()
    sp.save_npz(buffer, sp.csr_array(matrix).asformat(kind))
    return buffer.getvalue()


_X = np.eye(5)
_NUMBER = "write one, remove the column, or use it with --text a"
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("no nodes file", {"nodes": None}, " has no nodes.csv: add it, with the columns id and label"),
    ("two nodes files", {"nodes__csv__gz": b""}, " has both nodes.csv and nodes.csv.gz: keep one of them"),
    ("empty file", {"nodes": ""}, "/nodes.csv: the file is empty: its first line must name the columns"),
    ("BOM only", {"nodes": b"\xef\xbb\xbf"}, "/nodes.csv: the file is empty: its first line must name the columns"),
    ("empty edges", {"edges": "\n\n"}, "/edges.csv: the file is empty: its first line must name the columns"),
    ("header only", {"nodes": "id,label\n"}, "/nodes.csv: there are no rows after the column names: add a row for each node"),
    ("no id", {"nodes": "name,label\na,b\n"}, "/nodes.csv: there is no column 'id', only 'name', 'label': add it to the first line"),
    ("no label", {"nodes": "id,x\na,1\n"}, "/nodes.csv: there is no column 'label', only 'id', 'x': add it to the first line"),
    ("no target", {"edges": "source,to\nn1,n2\n"}, "/edges.csv: there is no column 'target', only 'source', 'to': add it to the first line"),
    ("semicolons", {"nodes": "id;label\na;b\n"}, "/nodes.csv: there is no column 'id', only 'id;label' (are they separated by semicolons or tabs? save them with commas): add it to the first line"),
    ("column twice", {"nodes": "id,label,a,a\nn1,x,1,2\n"}, "/nodes.csv, column 'a': two columns have this name: rename or remove one"),
    ("column without name", {"nodes": ",id,label\n0,n1,x\n"}, "/nodes.csv: column 1 has no name: name it in the first line or remove it"),
    ("too many cells", {"nodes": NODES.replace("n2,dog,2,0", "n2,dog,2,0,7")}, "/nodes.csv, line 3: 5 cells, but the first line has 4: add or remove cells, and put cells that contain commas in quotation marks"),
    ("too few cells", {"edges": EDGES.replace("n3,n4", "n3")}, "/edges.csv, line 4: 1 cells, but the first line has 2: add or remove cells, and put cells that contain commas in quotation marks"),
    ("not a number", {"nodes": NODES.replace("n3,cat,0,1", "n3,cat,zero,1")}, f"/nodes.csv, line 4, column 'a': 'zero' is not a number up to 1e+30: {_NUMBER}"),
    ("number as of Python", {"nodes": NODES.replace("n3,cat,0,1", "n3,cat,1_0,1")}, f"/nodes.csv, line 4, column 'a': '1_0' is not a number up to 1e+30: {_NUMBER}"),
    ("after lines in quotes", {"nodes": 'id,label,a\n"n\n1",x,1\n\nn2,y,?\n'}, f"/nodes.csv, line 5, column 'a': '?' is not a number up to 1e+30: {_NUMBER}"),
    ("empty cell", {"nodes": NODES.replace("n2,dog,2,0", "n2,dog,2,")}, "/nodes.csv, line 3, column 'b': the cell is empty: write a number (0 if there is none), or remove the column"),
    ("NaN", {"nodes": NODES.replace("n2,dog,2,0", "n2,dog,nan,0")}, f"/nodes.csv, line 3, column 'a': 'nan' is not a number up to 1e+30: {_NUMBER}"),
    ("infinite", {"nodes": NODES.replace("n2,dog,2,0", "n2,dog,-inf,0")}, f"/nodes.csv, line 3, column 'a': '-inf' is not a number up to 1e+30: {_NUMBER}"),
    ("huge", {"nodes": NODES.replace("n2,dog,2,0", "n2,dog,1e31,0")}, f"/nodes.csv, line 3, column 'a': '1e31' is not a number up to 1e+30: {_NUMBER}"),
    ("id twice", {"nodes": NODES + "n2,cat,1,1\n"}, "/nodes.csv, line 7, column 'id': 'n2' is already the id of line 3: give each node its own"),
    ("empty id", {"nodes": NODES + ",cat,1,1\n"}, "/nodes.csv, line 7, column 'id': the id is empty: give each node an id"),
    ("unknown id", {"edges": EDGES + "n5,n9\n"}, "/edges.csv, line 6, column 'target': 'n9' is not an id in nodes.csv: add the node there or remove the edge"),
    ("spaces around an id", {"edges": EDGES + "n5, n1\n"}, "/edges.csv, line 6, column 'target': ' n1' matches an id only without its leading or trailing spaces: remove them"),
    ("negative weight", {"edges": "source,target,weight\nn1,n2,1\nn2,n3,-2\n"}, "/edges.csv, line 3, column 'weight': the weight -2 is negative: use positive weights"),
    ("tiny weight", {"edges": "source,target,weight\nn1,n2,1e-50\n"}, "/edges.csv, line 2, column 'weight': the weight 1e-50 is too small: use a larger unit"),
    ("weight in words", {"edges": "source,target,weight\nn1,n2,heavy\n"}, "/edges.csv, line 2, column 'weight': 'heavy' is not a number up to 1e+30: write one, or remove the column"),
    ("bad split word", {"nodes": "id,label,split\nn1,x,train\nn2,y,dev\n"}, "/nodes.csv, line 3, column 'split': 'dev' is not part of a split: write train, val or test, or leave it empty"),
    ("train without label", {"nodes": "id,label,split\nn1,x,train\nn2,y,train\nn3,,train\n"}, "/nodes.csv, line 4, column 'split': the node is in train but has no label: label it, or leave the cell empty"),
    ("no train", {"nodes": "id,label,split\nn1,x,val\nn2,y,test\n"}, "/nodes.csv, column 'split': there are no training nodes: write train for some labelled nodes"),
    ("no labels", {"nodes": "id,label\nn1,\nn2, \n"}, "/nodes.csv, column 'label': no node has a label: label a few nodes of each class"),
    ("single class", {"nodes": "id,label\nn1,x\nn2,x\nn3,\n"}, "/nodes.csv, column 'label': all labels are 'x', so there is nothing to learn: also label nodes of another class"),
    ("constant columns", {"nodes": "id,label,a\nn1,x,7\nn2,y,7\n", "edges": "source,target\n"}, "/nodes.csv: every feature column is constant: give columns that differ between nodes, or none if there are edges to make features from"),
    ("latin-1", {"nodes": "id,label\nn1,x\nn2,caf\xe9\n".encode("latin-1")}, "/nodes.csv, line 3, byte 7: 0xe9 is not UTF-8: save the file with the encoding UTF-8"),
    ("UTF-16", {"edges": EDGES.encode("utf-16")}, "/edges.csv, line 1, byte 1: 0xff is not UTF-8: save the file with the encoding UTF-8"),
    ("open quote", {"nodes": 'id,label\nn1,x\n"n2,y\nn3,z\n'}, "/nodes.csv, line 3: unexpected end of data: close the quotation marks, and double the quotation marks inside a cell"),
    ("stray quote", {"nodes": 'id,label\nn1,x\n"n2"2,y\n'}, "/nodes.csv, line 3: ',' expected after '\"': close the quotation marks, and double the quotation marks inside a cell"),
    ("not gzip", {"nodes": None, "nodes__csv__gz": NODES}, "/nodes.csv.gz cannot be read to its end (Not a gzipped file (b'id')): write or compress it again"),
    ("cut gzip", {"nodes": None, "nodes__csv__gz": gzip.compress(NODES.encode())[:-9]}, "/nodes.csv.gz cannot be read to its end (Compressed file ended before the end-of-stream marker was reached): write or compress it again"),
    ("not parquet", {"nodes": None, "nodes__parquet": b"PAR1 no"}, "/nodes.parquet is not a readable Parquet file (ArrowInvalid): write it again"),
    ("rows of features", {"features__npz": _sparse(np.eye(4))}, "/features.npz has shape (4, 4), but there are 5 nodes: give one row per node, in the order of the labels"),
    ("features of no matrix", {"features__npz": _saved(x=_X)}, "/features.npz does not contain a CSR matrix: write it with scipy.sparse.save_npz(path, matrix.tocsr())"),
    ("features with pickle", {"features__npz": _saved(x=np.array([{}], dtype=object))}, "/features.npz, array 'x': it contains Python objects, which can run code when loaded: save it as plain numbers or text"),
    ("NaN in features", {"features__npz": _sparse(np.where(_X > 0, [1, 1, np.nan, 1, 1], 0))}, "/features.npz: the matrix is NaN, infinite or beyond 1e+30 in row 3, column 3: fill it in or rescale it"),
    ("features are text", {"features__npz": "1,2,3"}, "/features.npz is not a readable .npz file (BadZipFile): save it again"),
    ("index out of range", {"features__npz": _saved(format=np.array(b"csr"), shape=np.array([5, 5]), data=np.ones(1), indices=np.array([9]), indptr=np.array([0, 1, 1, 1, 1, 1]))}, "/features.npz: the matrix is invalid (an entry points at column 9, outside 0 to 4): save it again"),
    ("pointers that fall back", {"features__npz": _saved(format=np.array(b"csr"), shape=np.array([5, 5]), data=np.ones(1), indices=np.array([1]), indptr=np.array([0, 0, 0, 0, 1, 0]))}, "/features.npz: the matrix is invalid (the row pointers are not ascending from 0): save it again"),
    ("Matrix Market", {"features__mtx": "1 2 3\n"}, "/features.mtx is not read: keep one features.npy, written by numpy.save, or features.npz, by scipy.sparse.save_npz, or put the columns into the nodes file"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "message"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_folders(files: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", **files)
    with pytest.raises(GraphError) as caught:
        load(folder)
    assert str(caught.value) == f"{folder}{message}"


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("words", "nodes.csv: there is no column 'words' for --text, only 'id', 'label', 'a': choose one of these"),
        ("label", "nodes.csv, column 'label': this column has a different meaning: choose another one with --text"),
        ("a", "nodes.csv, column 'a': there is no word of two or more letters: use another column with --text"),
    ],
)  # fmt: skip
def test_bad_text_columns(column: str, message: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", "id,label,a\nn1,x,1\nn2,y,2\n", "source,target\n")
    with pytest.raises(GraphError) as caught:
        load(folder, text=column)
    assert str(caught.value) == f"{folder}/{message}"


_ADJ = {"adj_data": np.ones(2), "adj_indices": np.array([1, 0]), "adj_indptr": np.array([0, 1, 2])}
_ADJ |= {"adj_shape": np.array([2, 2])}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, ": there is no array 'labels': add the class of each node, -1 for unknown"),
        ({"labels": np.array([0, 1, 2])}, ": labels have shape (3,), but there are 2 nodes: give one per node"),
        ({"labels": np.array([0, 0])}, ": all labels are '0', so there is nothing to learn: also label nodes of another class"),
        ({"labels": np.array([-1, -1])}, ": no node has a label: label a few nodes of each class"),
        ({"labels": np.array([0.5, 1])}, ": labels must be whole numbers from 0 up, -1 for unknown: number the classes"),
        ({"labels": np.array([0, None])}, ", array 'labels': it contains Python objects, which can run code when loaded: save it as plain numbers or text"),
        ({"labels": np.arange(2), "attr_matrix": np.eye(3)}, ": the feature matrix has shape (3, 3), but there are 2 nodes: give one row per node"),
        ({"labels": np.arange(2), "attr_data": np.ones(1)}, ": there is no array 'attr_indices': save the matrix in scipy's CSR format"),
        ({"labels": np.arange(2), "attr_matrix": np.full((2, 1), np.inf)}, ": the feature matrix is NaN, infinite or beyond 1e+30 in row 1, column 1: fill it in or rescale it"),
        ({"adj_indices": np.array([1, 2])}, ": adj_ is invalid (an entry points at column 2, outside 0 to 1): save it again"),
        ({"adj_shape": np.array([2, 3])}, ": adj_shape is (2, 3): it must be square, with one row per node"),
        ({"adj_data": np.array([1, -1])}, ": adj_data has a weight that is negative, NaN or huge: use positive weights"),
        ({"adj_data": np.array(["1", "x"])}, ": adj_ is invalid (entries must be one-dimensional numbers): save it again"),
    ],
)  # fmt: skip
def test_bad_benchmark_files(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    path.write_bytes(_saved(**{**_ADJ, **arrays}))
    with pytest.raises(GraphError) as caught:
        load(path)
    assert str(caught.value) == f"{path}{message}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_per_class": 0}, "train_per_class is 0: use a whole number from 1 up"),
        ({"val": -1}, "val is -1: use a whole number from 0 up"),
        ({"split_seed": 0.5}, "split_seed is 0.5: use a whole number from 0 up"),
        ({"text": " "}, "text is ' ': give the name of a column of the nodes file"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load(write(tmp_path / "mine"), **options)
    assert str(caught.value) == message


def test_options_for_a_graph_that_brings_its_own(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match="cora has its own edges, split and features: remove val, split_seed"
    ):
        load("cora", val=3, split_seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("quoted", [False, True])
def test_one_bad_line_in_a_million(tmp_path: Path, quoted: bool) -> None:
    """The line number is exact, even if quotation marks before it prevent the fast path."""
    lines = ["n1,n2"] * 1_000_000
    if quoted:
        lines[10] = '"n1",n2'
    lines[731_204 - 2] = "n1,n2,n3"
    folder = write(tmp_path / "mine", edges="source,target\n" + "\n".join(lines))
    with pytest.raises(GraphError, match=r"edges\.csv, line 731204: 3 cells, but the first line has 2: "):
        load(folder)
