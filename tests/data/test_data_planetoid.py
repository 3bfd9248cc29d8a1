from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
from data_files import neighbours, onehot, planetoid_files, python2_pickle

from bvat.data.planetoid import paper_ids, read_cora, read_planetoid
from bvat.engine.sparse import SparseMatrix
from bvat.errors import DataError
from bvat.graph import Graph

PREFIX = "ind.tiny."


@pytest.fixture
def graph() -> Graph:
    return read_planetoid(planetoid_files(), PREFIX, name="tiny")


def test_features_stand_at_their_nodes_and_rows_sum_to_one(graph: Graph) -> None:
    assert isinstance(graph.features, SparseMatrix)
    x = graph.features.to_dense().numpy()
    expected = np.zeros((14, 6), dtype=np.float32)
    expected[np.arange(9), np.arange(9) % 5] = 2 / 3
    expected[:9, 5] = 1 / 3
    for node in (9, 10, 12, 13):  # rows of tx, which come in the order 13, 9, 12, 10
        expected[node, node - 9] = 1
    np.testing.assert_allclose(x, expected, rtol=1e-6)
    assert not x[11].any()


def test_labels_and_public_split(graph: Graph) -> None:
    assert graph.labels.tolist() == [0, 1, 0, 1, 1, 1, -1, 0, 0, 0, 2, -1, 1, 2]
    assert graph.train.tolist() == [0, 1, 2, 3]
    assert graph.val.tolist() == [4, 5, 7, 8]  # node 6 has no label
    assert graph.test.tolist() == [9, 10, 12, 13]  # node 11 is in no file
    assert graph.class_names == ("0", "1", "2")
    assert graph.validation == "official validation labels"


def test_edges_are_cleaned_and_counted(graph: Graph) -> None:
    assert graph.num_edges == 15  # the ring and 3-7
    a = graph.adjacency.to_dense()
    assert a[3, 7] == a[7, 3] == a[1, 2] == a[0, 13] == 1
    assert a.diagonal().sum() == 0
    counts = {"self_loops": 2, "duplicate_edges": 2, "one_way_edges": 1, "unequal_weights": 0}
    assert graph.repairs == counts


def test_validation_has_at_most_500_nodes() -> None:
    files = planetoid_files()
    size = 700
    labels = onehot([k % 3 for k in range(size)], 3)
    files |= {
        f"{PREFIX}allx": python2_pickle(sp.csr_matrix(np.ones((size, 6), dtype=np.float32))),
        f"{PREFIX}ally": python2_pickle(labels),
        f"{PREFIX}graph": python2_pickle(neighbours({k: [] for k in range(size + 4)})),
        f"{PREFIX}test.index": b"703\n700\n702\n701\n",
    }
    graph = read_planetoid(files, PREFIX, name="tiny")
    assert graph.val.tolist() == list(range(4, 504))


def _replace(part: str, value: object) -> Callable[[dict[str, bytes]], None]:
    return lambda files: files.update({PREFIX + part: python2_pickle(value)})


def _index(text: bytes) -> Callable[[dict[str, bytes]], None]:
    return lambda files: files.update({f"{PREFIX}test.index": text})


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(_replace("tx", sp.csr_matrix(np.eye(4, 5))), id="tx of another width"),
        pytest.param(_replace("tx", sp.csr_matrix(np.eye(3, 6))), id="tx with a row too few"),
        pytest.param(_replace("ty", onehot([0, 1, 0, 1], 2)), id="ty with a class too few"),
        pytest.param(_replace("y", np.arange(3)), id="y not one-hot"),
        pytest.param(_replace("graph", np.eye(2)), id="graph not a dict"),
        pytest.param(_replace("graph", {0: [99]}), id="an edge to nowhere"),
        pytest.param(_replace("graph", {-1: [0]}), id="an edge from nowhere"),
        pytest.param(_replace("ally", onehot([0] * 20, 3)), id="ally too long"),
        pytest.param(_index(b"3\n9\n10\n12\n"), id="test in allx"),
        pytest.param(_index(b""), id="no test nodes"),
        pytest.param(_index(b"9\ntwo\n10\n12\n"), id="a test node in words"),
        pytest.param(_index(b"9\n9\n10\n12\n"), id="a test node twice"),
        pytest.param(_index(b"9\n10\n12\n99999999999999999999\n"), id="a huge test node"),
    ],
)
def test_files_that_do_not_fit_are_refused(spoil: Callable[[dict[str, bytes]], None]) -> None:
    files = planetoid_files()
    spoil(files)
    with pytest.raises(DataError, match="get the original file"):
        read_planetoid(files, PREFIX, name="tiny")


CONTENT = b"p7\t1\t0\t1\tB\np3\t0\t1\t0\tA\np5\t0\t1\t0\tA\n"
CITES = b"p7 p3\np5\tp3\np3 p7\n"


def test_cora_text_files_in_a_given_order() -> None:
    graph = read_cora(CONTENT, CITES, class_names=("A", "B"), order=("p3", "p5", "p7"), train=1, test=1)
    assert isinstance(graph.features, SparseMatrix)
    np.testing.assert_allclose(graph.features.to_dense(), [[0, 1, 0], [0, 1, 0], [0.5, 0, 0.5]])
    assert graph.labels.tolist() == [0, 0, 1]
    assert graph.adjacency.to_dense().tolist() == [[0, 1, 1], [1, 0, 0], [1, 0, 0]]
    assert (graph.train.tolist(), graph.val.tolist(), graph.test.tolist()) == ([0], [1], [2])
    assert graph.repairs["duplicate_edges"] == 2
    assert graph.node_names == ("p3", "p5", "p7")


@pytest.mark.parametrize(
    ("content", "cites"),
    [
        (CONTENT.replace(b"p7", b"p8"), CITES),
        (CONTENT.replace(b"\tB", b"\tC"), CITES),
        (CONTENT.replace(b"p5", b"p3"), CITES),
        (CONTENT, CITES + b"p7 p9\n"),
    ],
)
def test_unknown_papers_and_classes_are_refused(content: bytes, cites: bytes) -> None:
    with pytest.raises(DataError, match="get the original files"):
        read_cora(content, cites, class_names=("A", "B"), order=("p3", "p5", "p7"), train=1, test=1)


def test_the_shipped_order_names_each_paper_once() -> None:
    assert len(paper_ids()) == len(set(paper_ids())) == 2708
    assert all(paper.isdecimal() for paper in paper_ids())
