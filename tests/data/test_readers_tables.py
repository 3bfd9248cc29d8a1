"""Graphs without edges: a table, a folder without edges.csv, and a matrix beside labels.csv."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch
from pyarrow import parquet
from reader_files import EDGES, NODES, write

from bvat.data import load, load_graph, save_graph
from bvat.errors import DataError, GraphError
from bvat.graph import Graph
from cli_helpers import bvat

NO_EDGES = "no edges: auto finds neighbours from the features, other methods see none"
X = np.array([[3, -1.0], [0, 2], [1, 1], [-2, 2], [4, 0.5]])


def npy(array: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def dense(graph: Graph) -> torch.Tensor:
    return graph.features.to_dense()


def test_a_table_is_the_folder_without_its_edges(tmp_path: Path) -> None:
    folder = load(write(tmp_path / "pets", edges=None))
    (tmp_path / "pets.csv").write_text(NODES)
    (tmp_path / "Pets.CSV").write_text(NODES)
    columns = {"id": ["n1", "n2", "n3", "n4", "n5"], "label": ["cat", "dog", "cat", "dog", None]}
    numbers = {"a": [1.0, 2, 0, 3, 1], "b": [0.5, 0, 1, 2, 1]}
    parquet.write_table(pa.table({**columns, **numbers}), tmp_path / "pets.parquet")
    for graph in (folder, *(load(tmp_path / name) for name in ("pets.csv", "Pets.CSV", "pets.parquet"))):
        assert graph.num_edges == 0
        assert graph.name.lower() == "pets"
        assert graph.notes.count(NO_EDGES) == 1
        assert not any("nodes without edges" in note for note in graph.notes)
        assert graph.node_names == folder.node_names
        assert graph.labels.tolist() == [0, 1, 0, 1, -1]
        assert torch.equal(dense(graph), dense(load(write(tmp_path / "with"))))
    assert load(write(tmp_path / "empty", edges="source,target\n")).notes.count(NO_EDGES) == 1


def test_ids_are_needed_for_edges_only_and_labels_for_training_only(tmp_path: Path) -> None:
    path, new = tmp_path / "flowers.csv", tmp_path / "new.csv"
    path.write_text("label,a,b\nx,1,2\ny,2,1\n,3,5\n")
    graph = load(path)
    assert graph.node_names is None
    new.write_text("a,b\n1,2\n7,7\n")
    more = load(new, like=graph)
    assert more.labels.tolist() == [-1, -1]
    assert torch.equal(dense(more)[0], dense(graph)[0])
    with pytest.raises(GraphError, match=r"new\.csv: there is no column 'label'"):
        load(new)
    new.write_text("a,b,c\n1,2,3\n")
    with pytest.raises(GraphError, match=r"new\.csv, column 'c': the model was trained without this column"):
        load(new, like=graph)


def test_new_texts_are_read_with_the_words_of_the_model(tmp_path: Path) -> None:
    path, new = tmp_path / "articles.csv", tmp_path / "more.csv"
    path.write_text("id,label,body\n1,x,red apple\n2,y,blue sky\n3,,red sky blue\n")
    graph = load(path, text="body")
    new.write_text("id,body\n9,red green\n1,red sky blue\n")
    more = load(new, like=graph)
    assert more.num_features == graph.num_features == 3
    assert dense(more)[0].tolist() == [0, 1, 0]  # blue, red, sky
    assert torch.equal(dense(more)[1], dense(graph)[2])
    with pytest.raises(
        GraphError, match=r"line 2, column 'body': 'red apple' is not a number up to .*: .* --text body"
    ):
        load(path)


@pytest.mark.parametrize("kind", [np.float64, np.float16, np.int8, ">f4"])
def test_a_matrix_in_a_folder(kind: Any, tmp_path: Path) -> None:
    matrix = X.astype(kind)
    graph = load(
        write(tmp_path / "one", "id,label\na,x\nb,y\nc,\nd,x\ne,y\n", None, features__npy=npy(matrix))
    )
    rows = matrix.astype(np.float64)
    expected = (rows / np.abs(rows).sum(1, keepdims=True)).astype(np.float32)
    assert np.allclose(dense(graph), expected, rtol=1e-6)
    assert graph.node_names == ("a", "b", "c", "d", "e")
    sp.save_npz(tmp_path / "one" / "features.npz", sp.csr_array(matrix.astype(np.float32)))
    (tmp_path / "one" / "features.npy").unlink()
    assert np.allclose(dense(load(tmp_path / "one")), expected, rtol=1e-6)
    fortran = npy(np.asfortranarray(matrix))
    again = load(write(tmp_path / "two", "id\na\nb\nc\nd\ne\n", None, features__npy=fortran), like=graph)
    assert torch.equal(dense(again), dense(graph))


@pytest.mark.parametrize("name", ["mine.npy", "features.npz"])
def test_a_matrix_beside_labels(name: str, tmp_path: Path) -> None:
    def save(path: Path, matrix: Any) -> None:
        np.save(path, matrix) if path.suffix == ".npy" else sp.save_npz(path, sp.csr_array(matrix))

    path = tmp_path / name
    save(path, X)
    (tmp_path / "labels.csv").write_text('label\nx\ny\n""\nx\n""\n')
    graph = load(path)
    assert graph.labels.tolist() == [0, 1, -1, 0, -1]
    assert graph.name == path.stem
    assert NO_EDGES in graph.notes
    new = tmp_path / "new" / name
    new.parent.mkdir()
    save(new, X[:2])
    more = load(new, like=graph)
    assert torch.equal(dense(more), dense(graph)[:2])
    assert more.labels.tolist() == [-1, -1]
    with pytest.raises(GraphError, match=r"new has no labels\.csv: add it, with the column label"):
        load(new)
    save(new, X[:, :1])
    with pytest.raises(GraphError, match="has 1 columns, but the model was trained with 2"):
        load(new, like=graph)
    (tmp_path / "labels.csv").write_text("label\nx\ny\n\nx\n\n")
    with pytest.raises(GraphError, match='blank lines do not count: write "" for an unknown label'):
        load(path)
    (tmp_path / "labels.csv").write_text('label\nx\ny\n""\nx\n""\n')
    save(path, X[:3])
    with pytest.raises(GraphError, match=r"has shape \(3, 2\), but there are 5 nodes: give one row per node"):
        load(path)


def claims(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    header = (
        f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape!r}, }}".encode().ljust(117) + b"\n"
    )
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(80)


_ROWS = "give one row per node, in the order of the labels"
BAD: list[tuple[bytes, str]] = [
    (npy(np.ones(5)), rf"has shape \(5,\), but there are 5 nodes: {_ROWS}"),
    (npy(np.ones((5, 2, 1))), rf"has shape \(5, 2, 1\), but there are 5 nodes: {_ROWS}"),
    (npy(np.ones((5, 0))), rf"has shape \(5, 0\), but there are 5 nodes: {_ROWS}"),
    (npy(np.ones((4, 2))), rf"has shape \(4, 2\), but there are 5 nodes: {_ROWS}"),
    (npy(np.array([["a"]] * 5)), "is not numeric: save it as numbers"),
    (npy(np.ones((5, 1), complex)), "is not numeric: save it as numbers"),
    (npy(np.array([[{}]] * 5), allow_pickle=True), "array 'features': it contains Python objects, which can"),
    (npy(np.where(X == 2, np.nan, X)), "the matrix is NaN, infinite or beyond 1e\\+30 in row 2, column 2"),
    (npy(X * 1e30), "the matrix is NaN, infinite or beyond 1e\\+30 in row 1, column 1"),
    (npy(np.ones((5, 3))), "has no edges, and all nodes have the same features: add others, or edges"),
    (npy(X)[:-1], r"is not a readable \.npy file"),
    (claims((5, 2**40)), "is not a readable"),
    (claims((5, -2)), "is not a readable"),
    (claims((5, 2), "|V8"), "is not numeric"),
    (b"", r"is not a readable \.npy file"),
    (b"1,2,3\n", r"is not a readable \.npy file"),
    (b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 70_000, r"is not a readable \.npy file"),
    (b"PK\x03\x04", r"is not a readable \.npy file"),
]


@pytest.mark.parametrize(("content", "message"), BAD)
def test_bad_matrices(content: bytes, message: str, tmp_path: Path) -> None:
    nodes = "label\nx\ny\nx\ny\ny\n"
    with pytest.raises(GraphError, match=message) as caught:
        load(write(tmp_path / "mine", nodes, None, features__npy=content))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            "id,label\n1,x\n2,y\n",
            "mine has neither edges nor features: add edges, numeric columns, or a text",
        ),
        ("id,label,a\n1,x,7\n2,y,7\n", "every feature column is constant"),
        ("id,label,a\n1,x,1\n2,y,1\n", "mine has no edges, and all nodes have the same features"),
        ("id,label,a\n1,x,1\n2,x,2\n", "all labels are 'x', so there is nothing to learn"),
        ("id,label,a\n1,,1\n2,,2\n", "no node has a label: label a few nodes of each class"),
        ("id,label,a\n1,x,nan\n2,y,2\n", r"mine\.csv, line 2, column 'a': 'nan' is not a number"),
        ("id,label,a\n1,x,1\n1,y,2\n", r"mine\.csv, line 3, column 'id': '1' is already the id of line 2"),
        ("label,a\n", "there are no rows after the column names"),
        ("", "the file is empty: its first line must name the columns"),
    ],
)
def test_bad_tables(nodes: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(nodes)
    with pytest.raises(GraphError, match=message):
        load(path)


def test_parts_of_a_folder_are_not_read_alone(tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", features__npy=npy(X))
    assert load(folder).num_features == 4
    for name in ("nodes.csv", "edges.csv", "features.npy"):
        with pytest.raises(DataError, match=r"cannot be read as a graph \(but the folder .*mine can\)"):
            load(folder / name)
    write(folder, features__npz=b"")
    with pytest.raises(GraphError, match=r"features\.npy is not read: keep one features\.npy"):
        load(folder)


def test_many_columns(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("label\nx\ny\n")
    np.save(tmp_path / "wide.npy", np.random.default_rng(0).standard_normal((2, 100_000)))
    assert load(tmp_path / "wide.npy").num_features == 100_000


def test_a_graph_is_saved_and_loaded_with_what_the_reader_said(tmp_path: Path) -> None:
    for edges in (None, EDGES):
        graph = load(write(tmp_path / "mine", edges=edges))
        save_graph(graph, tmp_path / "graph.npz")
        again = load_graph(tmp_path / "graph.npz")
        assert again.num_edges == graph.num_edges
        assert torch.equal(again.propagation.to_dense(), graph.propagation.to_dense())
        assert (again.notes, again.recipe) == (graph.notes, graph.recipe)


def test_train_and_predict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words, names = ("bread salt oven", "goal ball team"), ("food", "sport")
    rows = [f"a{k},{names[k % 2] if k < 20 else ''},{words[k % 2]} on day {k % 7}" for k in range(40)]
    Path("articles.csv").write_text("\n".join(["id,label,body", *rows]))
    Path("more.csv").write_text("id,label,body\nb1,,fresh bread\nb2,,our team\na0,food,salt\n")
    options = ["--text", "body", "--method", "sbvat", "--epochs", "20", "--val", "4"]
    options += ["--jobs", "1", "--no-report"]
    code, _, err = bvat(["train", "articles.csv", *options], capsys)
    assert code == 0
    assert f"note: {NO_EDGES}" in err
    run = "runs/articles-sbvat"
    code, out, _ = bvat(["predict", run, "--graph", "more.csv", "--out", "out.csv"], capsys)
    assert code == 0
    assert "no accuracy: the model was trained on all 1 nodes with a label" in out
    predicted = [line.split(",")[:2] for line in Path("out.csv").read_text().splitlines()[1:]]
    assert predicted == [["b1", "food"], ["b2", "sport"], ["a0", "food"]]
    Path("more.csv").write_text("id,label,body\nb1,music,x\n")
    code, _, err = bvat(["predict", run, "--graph", "more.csv", "--out", "out.csv"], capsys)
    assert code == 2
    assert "the model does not know class 'music'" in err
