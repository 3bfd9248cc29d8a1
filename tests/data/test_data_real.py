"""The real data sets, if their raw files are available."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from test_data_store import assert_same

from bvat.data import load, sources
from bvat.data.planetoid import read_cora
from bvat.engine.sparse import SparseMatrix
from bvat.graph import Graph


@pytest.fixture(autouse=True)
def given(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BVAT_DATA", str(real_data))


@pytest.mark.parametrize(
    ("name", "edges", "splits", "unknown"),
    [
        ("cora", 5278, (140, 500, 1000), 0),
        ("citeseer", 4552, (120, 500, 1000), 15),
        ("pubmed", 44324, (60, 500, 1000), 0),
    ],
)
def test_citation_graphs(name: str, edges: int, splits: tuple[int, int, int], unknown: int) -> None:
    graph = load(name)
    assert graph.num_edges == edges
    assert (len(graph.train), len(graph.val), len(graph.test)) == splits
    assert int((graph.labels < 0).sum()) == unknown
    per_class = torch.bincount(graph.labels[graph.train])
    assert per_class.tolist() == [20] * graph.num_classes
    x = graph.features
    assert isinstance(x, SparseMatrix)
    sums = torch.zeros(graph.num_nodes).index_add_(0, x.rows, x.values)
    full = sums > 0
    torch.testing.assert_close(sums[full], torch.ones(int(full.sum())))
    assert not full[graph.labels < 0].any()
    _compare_with_table_1(graph)


def _compare_with_table_1(graph: Graph) -> None:
    """The paper counts edges as half the entries of the neighbour lists, with self-loops and repetitions."""
    repairs = graph.repairs
    entries = (
        2 * graph.num_edges - repairs["one_way_edges"] + repairs["self_loops"] + repairs["duplicate_edges"]
    )
    assert sources.read_registry().datasets[graph.name].table1 == {
        "nodes": graph.num_nodes,
        "edges": entries / 2,
        "features": graph.num_features,
        "classes": graph.num_classes,
        "train": len(graph.train),
    }


def test_labels_agree_with_the_neighbours_on_cora() -> None:
    """Homophily of Cora is .81: a wrong order of the test nodes would lower it."""
    graph = load("cora")
    a = graph.adjacency
    same = graph.labels[a.rows] == graph.labels[a.col.long()]
    assert float(same.float().mean()) == pytest.approx(0.81, abs=0.005)
    in_test = torch.isin(a.rows, graph.test)
    assert float(same[in_test].float().mean()) > 0.78


def test_cora_from_the_text_files_is_the_same_graph(cora_text: tuple[bytes, bytes]) -> None:
    content, cites = cora_text
    dataset = sources.read_registry().datasets["cora"]
    assert all(file.matches(data) for file, data in zip(dataset.equivalent, cora_text, strict=True))
    assert_same(read_cora(content, cites, class_names=dataset.class_names), load("cora"))


def test_nell() -> None:
    graph = load("nell")
    x = graph.features
    assert isinstance(x, SparseMatrix)
    assert x.shape == (65755, 61278)
    assert graph.num_edges == 125775
    assert (len(graph.train), len(graph.val), len(graph.test)) == (105, 500, 969)
    assert graph.validation in (
        "official validation labels",
        "recovered labels (500 nodes from the sister splits)",
    )
    assert sorted(graph.labels[graph.train].tolist()) == list(range(105))
    own = x.col >= 5414
    assert int(own.sum()) == 55864
    assert bool((torch.diff(x.rows[own]) > 0).all())
    assert np.array_equal(x.col[own].numpy(), np.arange(5414, 61278))
    _compare_with_table_1(graph)
