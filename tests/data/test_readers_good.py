from __future__ import annotations

import csv
import gzip
import io
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from reader_files import EDGES, NODES, write

from bvat import Graph
from bvat.data import load
from bvat.data.readers import csv_table, features
from bvat.data.readers.features import tfidf
from bvat.engine.sparse import SparseMatrix


def dense(graph: Graph) -> torch.Tensor:
    return graph.features.to_dense()


def same(one: Graph, two: Graph) -> None:
    assert torch.equal(dense(one), dense(two))
    assert (one.adjacency.to_scipy() != two.adjacency.to_scipy()).nnz == 0
    for part in ("labels", "train", "val", "test"):
        assert torch.equal(getattr(one, part), getattr(two, part))
    assert (one.class_names, one.node_names) == (two.class_names, two.node_names)


def test_a_plain_folder(tmp_path: Path) -> None:
    graph = load(write(tmp_path / "pets"))
    assert graph.name == "pets"
    assert graph.node_names == ("n1", "n2", "n3", "n4", "n5")
    assert graph.class_names == ("cat", "dog")
    assert graph.labels.tolist() == [0, 1, 0, 1, -1]
    assert graph.num_edges == 4
    x = dense(graph).double()
    assert torch.allclose(x.mean(0), torch.zeros(2).double(), atol=1e-6)
    assert torch.allclose(x.std(0, correction=0), torch.full((2,), 0.5).double())  # 1 / number of columns
    assert "2 feature columns were scaled to mean 0 and standard deviation 1" in graph.notes
    assert graph.train.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("name", "values", "left_out"),
    [
        ("facebook_id", "145647315578475 191483281412 144761358898518 568700043198473 105", True),
        ("userId", "5 4 3 2 1", True),
        ("facebook_id", "5 4 3 2 2", False),
        ("facebook_id", "5 4 3 2 1.5", False),
        ("paid", "5 4 3 2 1", False),
    ],
)
def test_a_column_of_ids_is_no_feature(tmp_path: Path, name: str, values: str, left_out: bool) -> None:
    rows = zip(NODES.splitlines(), [name, *values.split()], strict=True)
    nodes = "".join(f"{row},{value}\n" for row, value in rows)
    graph = load(write(tmp_path / "one", nodes))
    said = [note for note in graph.notes if "looks like an id" in note]
    assert bool(said) == left_out
    if left_out:
        assert said[0].startswith(f"column '{name}' is left out")
        assert "rename it to use it" in said[0]
        assert torch.equal(dense(graph), dense(load(write(tmp_path / "two"))))
        again = load(tmp_path / "one", like=graph)
        assert torch.equal(dense(graph), dense(again))
        assert f"column '{name}' is not used: the model was trained without it" in again.notes
    else:
        assert graph.num_features == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\r"),
        lambda text: "\ufeff" + text,
        lambda text: text.rstrip("\n"),
        lambda text: text + "\n\n\n",
        lambda text: text.replace("\n", "\n\n", 1),
        lambda text: text.replace("n1", '"n1"'),
        lambda text: text.replace("id,label", "ID, Label").replace("source,", "Source ,"),
    ],
)
def test_the_same_file_written_in_other_ways(change: Any, tmp_path: Path) -> None:
    plain = load(write(tmp_path / "one"))
    same(plain, load(write(tmp_path / "two", change(NODES), change(EDGES))))


def test_gzip(tmp_path: Path) -> None:
    packed = {
        "nodes__csv__gz": gzip.compress(NODES.encode()),
        "edges__csv__gz": gzip.compress(EDGES.encode()),
    }
    same(load(write(tmp_path / "one")), load(write(tmp_path / "two", None, None, **packed)))


def test_parquet(tmp_path: Path) -> None:
    folder = write(tmp_path / "two", None, None)
    nodes = {"id": [10, 20, 30], "label": ["x", None, "y"], "a": [1, 2, 5], "b": [True, False, True]}
    parquet.write_table(pa.table(nodes), folder / "nodes.parquet")
    parquet.write_table(pa.table({"source": [10, 30], "target": [20, 20]}), folder / "edges.parquet")
    plain = write(
        tmp_path / "one", "id,label,a,b\n10,x,1,1\n20,,2,0\n30,y,5,1\n", "source,target\n10,20\n30,20\n"
    )
    same(load(plain), load(folder))
    for column, message in (
        ({"a": [1, None, 2]}, r"nodes\.parquet, row 2, column 'a': the cell is empty"),
        ({"a": [1, 2, math.nan]}, r"nodes\.parquet, row 3, column 'a': nan is not finite"),
        ({"a": ["1", "2", "3"]}, r"nodes\.parquet, column 'a': string is not a number"),
        ({"id": [1, 2, 1]}, r"nodes\.parquet, row 3, column 'id': '1' is already the id of row 1"),
        ({"label": [[1], [2], [3]]}, r"nodes\.parquet, row 1, column 'label': a list is not a text"),
        ({"label": [b"\xff", b"x", b"y"]}, r"nodes\.parquet, row 1, column 'label': the bytes are not UTF-8"),
    ):
        parquet.write_table(pa.table({**nodes, **column}), folder / "nodes.parquet")
        with pytest.raises(ValueError, match=message):
            load(folder)


def test_quoted_cells(tmp_path: Path) -> None:
    nodes = 'id,label,a\n"Doe, Jane","very\ngood",1\n"say ""hi""",bad,2\n'
    graph = load(write(tmp_path / "mine", nodes, 'source,target\n"Doe, Jane","say ""hi"""\n'))
    assert graph.node_names == ("Doe, Jane", 'say "hi"')
    assert graph.class_names == ("bad", "very\ngood")
    assert graph.num_edges == 1


def test_edges_of_all_kinds(tmp_path: Path) -> None:
    edges = "source,target,weight,since\nn1,n2,2,a\nn2,n1,3,a\nn1,n2,1,a\nn3,n3,1,b\nn3,n4,0,b\n"
    graph = load(write(tmp_path / "mine", edges=edges))
    assert graph.num_edges == 1
    assert graph.adjacency.to_dense()[0, 1] == graph.adjacency.to_dense()[1, 0] == 3
    assert {
        "edges of weight 0 removed: 1",
        "unused columns of edges.csv: 'since'",
        "self-loops removed: 1",
        "duplicate edges merged, keeping the largest weight: 1",
        "nodes without edges, classified by their features alone: 3",
    } <= set(graph.notes)
    assert load(write(tmp_path / "mine", edges="source,target\n")).num_edges == 0


def test_class_names_are_sorted_and_numbers_by_size(tmp_path: Path) -> None:
    def names(*labels: str) -> tuple[str, ...]:
        rows = "".join(f"{k},{label}\n" for k, label in enumerate(labels))
        return load(write(tmp_path / "mine", "id,label\n" + rows, "source,target\n0,1\n")).class_names

    assert names("10", "9", "", "9") == ("9", "10")
    assert names("b", " a ", "B", "é", "10") == ("10", "B", "a", "b", "é")
    assert names("1", "9" * 5000) == ("1", "9" * 5000)


def test_features_of_words_and_marks_are_divided_by_their_row(tmp_path: Path) -> None:
    graph = load(write(tmp_path / "mine", "id,label,a,b\nn1,x,1,1\nn2,y,0,1\n", "source,target\nn1,n2\n"))
    assert dense(graph).tolist() == [[0.5, 0.5], [0, 1]]
    head = ",".join(f"w{k}" for k in range(8))
    graph = load(write(tmp_path / "mine", f"id,label,{head}\nn1,x,3,1,0,0,0,0,0,0\nn2,y,0,0,0,0,0,0,0,2\n",
                       "source,target\nn1,n2\n"))  # fmt: skip
    assert isinstance(graph.features, SparseMatrix)
    assert dense(graph)[:, [0, 1, 7]].tolist() == [[0.75, 0.25, 0], [0, 0, 1]]


def test_text(tmp_path: Path) -> None:
    nodes = 'id,label,about,age\n1,x,"The cat, the CAT",3\n2,y,the dog,4\n3,,dog unique,8\n'
    graph = load(write(tmp_path / "mine", nodes, "source,target\n1,2\n"), text="about")
    assert "the text in column 'about' was turned into 2 words (TF-IDF)" in graph.notes
    x = dense(graph)
    assert x.shape == (3, 3)
    assert x[:, 1].tolist() == [0, 0.5, 1]  # dog
    assert x[:, 2].tolist() == [1, 0.5, 0]  # the
    _, idf = tfidf(["The cat, the CAT", "the dog", "dog unique"])
    assert idf == {"dog": math.log(4 / 3) + 1, "the": math.log(4 / 3) + 1}
    assert tfidf(["the the dog"], idf)[0].toarray().tolist() == [pytest.approx([idf["dog"], 2 * idf["the"]])]
    assert list(tfidf(["alpha", "beta"])[1]) == ["alpha", "beta"]  # no word occurs twice: all are kept


def test_without_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(
        tmp_path / "mine", "id,label\nn1,x\nn2,y\nn3,\nn4,\n", "source,target\nn1,n2\nn1,n3\nn2,n1\n"
    )
    graph = load(folder)
    assert torch.equal(dense(graph), torch.eye(4))
    assert "there are no features, so each of the 4 nodes gets its own (one-hot)" in graph.notes
    monkeypatch.setattr(features, "MAX_ONE_HOT", 3)
    graph = load(folder)
    assert dense(graph).argmax(1).tolist() == [2, 1, 1, 0]
    assert any("the logarithm of the degree is used (3 features)" in note for note in graph.notes)


cells = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(cells.filter(bool), unique=True, min_size=2, max_size=8), st.data())
def test_ids_and_classes_are_any_strings(tmp_path: Path, ids: list[str], data: st.DataObject) -> None:
    labels = data.draw(
        st.lists(cells, min_size=len(ids), max_size=len(ids)).map(lambda x: ["one", "two", *x])
    )
    ids = ["first", "second", *[f"x{name}" for name in ids]]
    nodes, edges = io.StringIO(newline=""), io.StringIO(newline="")
    csv.writer(nodes).writerows([("id", "label"), *zip(ids, labels, strict=True)])
    csv.writer(edges).writerows([("source", "target"), *itertools.pairwise(ids)])
    graph = load(write(tmp_path / "mine", nodes.getvalue(), edges.getvalue()))
    assert graph.node_names == tuple(ids)
    assert graph.num_edges == len(ids) - 1
    got = ["" if y < 0 else graph.class_names[y] for y in graph.labels.tolist()]
    assert got == [label.strip() for label in labels]


@pytest.mark.parametrize("size", [16, 64])
def test_pieces_and_blocks_of_any_size(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not matter where a chunk of the file ends, or where the csv module takes over."""
    rows = [f"node{k},{'xy'[k % 2]},{k * 0.25}" for k in range(300)]
    rows[200] = '"node200",x,50'
    folder = write(tmp_path / "mine", "id,label,a\n" + "\n".join(rows), "source,target\nnode1,node200\n")
    plain = load(folder)
    monkeypatch.setattr(csv_table, "_BYTES", size)
    monkeypatch.setattr(csv_table, "_ROWS", 3)
    monkeypatch.setattr(csv_table, "_CELLS", 1)
    same(plain, load(folder))


def _benchmark(path: Path, **more: Any) -> Path:
    a = sp.csr_array(np.array([[0, 1, 0], [0, 0, 1], [1, 0, 1]]))
    x = sp.csr_array(np.array([[1.0, 1], [0, 2], [0, 0]]))
    arrays = {f"adj_{part}": getattr(a, part) for part in ("data", "indices", "indptr", "shape")}
    if "attr_matrix" not in more:
        arrays |= {f"attr_{part}": getattr(x, part) for part in ("data", "indices", "indptr", "shape")}
    np.savez(path, allow_pickle=True, **{**arrays, "labels": np.array([0, 2, -1]), **more})
    return path


def test_benchmark_files(tmp_path: Path) -> None:
    graph = load(_benchmark(tmp_path / "amazon.npz"))
    assert graph.name == "amazon"
    assert graph.class_names == ("0", "2")
    assert graph.labels.tolist() == [0, 1, -1]
    assert graph.num_edges == 3
    assert dense(graph).tolist() == [[0.5, 0.5], [0, 1], [0, 0]]
    graph = load(_benchmark(tmp_path / "b.npz", attr_matrix=np.array([[1, 3], [1, 1], [0, 0]]),
                            class_names=np.array(["a", "b", "c"]), labels=np.array([1, 0, 2])))  # fmt: skip
    assert graph.class_names == ("a", "b", "c")
    assert dense(graph)[0].tolist() == [0.25, 0.75]
    graph = load(
        _benchmark(tmp_path / "c.npz", labels=np.array(["u", "v", ""]), node_names=np.array([None] * 3))
    )
    assert (graph.class_names, graph.node_names) == (("u", "v"), None)


class TestReadingAnotherGraphInTheSameWay:
    def test_columns_are_scaled_as_they_were(self, tmp_path: Path) -> None:
        first = load(write(tmp_path / "one"))
        second = load(write(tmp_path / "two", NODES.replace("a,b", "b,a") + "n6,dog,100,100\n"), like=first)
        ((mean_a, mean_b), (scale_a, scale_b)) = (first.recipe["columns"][k] for k in ("mean", "scale"))
        expected = [(100 - mean_a) * scale_a, (100 - mean_b) * scale_b]
        assert dense(second)[5].tolist() == pytest.approx(expected, rel=1e-5)
        same(first, load(tmp_path / "one", like=first.recipe))

    def test_words_are_the_same(self, tmp_path: Path) -> None:
        nodes = "id,label,t\n1,x,red car\n2,y,red bike\n3,y,blue car\n"
        first = load(write(tmp_path / "one", nodes, "source,target\n1,2\n"), text="t")
        second = load(write(tmp_path / "two", "id,label,t\n1,y,new red red\n", "source,target\n"), like=first)
        assert dense(second).tolist() == [[0, 1]]
        assert second.labels.tolist() == [1]

    @pytest.mark.parametrize(
        ("nodes", "message"),
        [
            (NODES.replace(",b", ",c"), "column 'b': the model was trained with this column: add it"),
            (NODES.replace("n5,,", "n5,cow,"), "line 6, column 'label': the model does not know class 'cow'"),
        ],
    )
    def test_what_does_not_match_is_refused(self, nodes: str, message: str, tmp_path: Path) -> None:
        first = load(write(tmp_path / "one"))
        with pytest.raises(ValueError, match=message):
            load(write(tmp_path / "two", nodes), like=first)

    def test_one_hot_features_fit_no_other_graph(self, tmp_path: Path) -> None:
        first = load(write(tmp_path / "one", "id,label\nn1,x\nn2,y\n", "source,target\nn1,n2\n"))
        with pytest.raises(ValueError, match="trained with one feature per node"):
            load(tmp_path / "one", like=first)
