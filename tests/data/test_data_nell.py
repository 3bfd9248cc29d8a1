from __future__ import annotations

import io

import numpy as np
import pytest
from data_files import NELL, nell_files

from bvat.data.planetoid import RECOVERED_FILE, read_nell
from bvat.engine.sparse import SparseMatrix
from bvat.errors import DataError
from bvat.graph import Graph


def _read(*left_out: str) -> Graph:
    """Return the graph without some files: the split is the same whatever validates."""
    files = {name: data for name, data in nell_files().items() if name not in left_out}
    graph = read_nell(files, NELL)
    assert graph.train.tolist() == [0, 1]
    assert graph.test.tolist() == [8, 10]
    assert not set(graph.val.tolist()) & {0, 1, 8, 10}
    return graph


def test_relations_get_columns_of_their_own() -> None:
    x = _read().features
    assert isinstance(x, SparseMatrix)
    assert x.shape == (12, 4 + 4)
    dense = x.to_dense().numpy()
    for column, node in enumerate((6, 7, 9, 11)):
        assert dense[node].tolist() == np.eye(8)[4 + column].tolist()
    assert dense[10].tolist() == [0, 0, 0.75, 0.25, 0, 0, 0, 0]  # the first row of tx
    assert dense[8].tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
    np.testing.assert_allclose(dense.sum(axis=1), 1, rtol=1e-6)


def test_official_labels_validate_when_ally_is_there() -> None:
    graph = _read()
    assert graph.validation == "official validation labels"
    assert graph.class_names == ("1", "4")
    assert graph.val.tolist() == [2, 3]  # 4 is of a class without training node, 5 has no label
    assert graph.labels.tolist() == [1, 0, 0, 1, -1, -1, -1, -1, 1, -1, 0, -1]


def test_recovered_labels_validate_otherwise() -> None:
    graph = _read(f"{NELL}ally")
    assert graph.validation == "recovered labels (2 nodes from the sister splits)"
    assert graph.val.tolist() == [3, 5]
    assert graph.labels.tolist() == [1, 0, -1, 1, -1, 0, -1, -1, 1, -1, 0, -1]


def test_without_either_nothing_validates_and_the_graph_says_so() -> None:
    graph = _read(f"{NELL}ally", RECOVERED_FILE)
    assert graph.val.numel() == 0
    assert graph.validation.startswith("no validation labels")


def _npz(**arrays: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


LABEL = [4, 1, -1, 4, -1, 1, -1, -1, 4, -1, 1, -1]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"nothing", id="garbage"),
        pytest.param(_npz(label=LABEL), id="no val500"),
        pytest.param(_npz(label=LABEL[:-1], val500=[3]), id="a label too few"),
        pytest.param(_npz(label=[1, *LABEL[1:]], val500=[3]), id="contradicts train"),
        pytest.param(_npz(label=LABEL, val500=[8]), id="validates on a test node"),
        pytest.param(_npz(label=np.array(LABEL, dtype=object), val500=[3]), id="a pickle inside"),
    ],
)
def test_recovered_labels_that_are_wrong_are_refused(content: bytes) -> None:
    files = {**nell_files(), RECOVERED_FILE: content}
    del files[f"{NELL}ally"]
    with pytest.raises(DataError, match="get the original files"):
        read_nell(files, NELL)
