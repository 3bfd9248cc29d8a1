"""Several labels per node from tables, arrays, torch_geometric and bvat's own files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bvat
from bvat.data.splits import ReadOptions, folds, resplit
from bvat.errors import DataError, GraphError
from several_labels import songs, write_songs

EDGES = "source,target\na,b\nb,c\nc,d\nd,e\n"
Write = Callable[..., Path]


@pytest.fixture
def tables(tmp_path: Path) -> Write:
    def write(*lines: str, column: str = "labels") -> Path:
        folder = tmp_path / "graph"
        folder.mkdir(exist_ok=True)
        rows = (f"{name},{line},{k}" for k, (name, line) in enumerate(zip("abcde", lines, strict=True)))
        (folder / "nodes.csv").write_text("\n".join([f"id,{column},x", *rows]))
        (folder / "edges.csv").write_text(EDGES)
        return folder

    return write


def test_a_column_of_labels(tables: Write) -> None:
    graph = bvat.load(tables("red|round", "round", "|", "", " blue | red "))
    assert graph.class_names == ("blue", "red", "round")
    assert graph.labels.tolist() == [[0, 1, 1], [0, 0, 1], [0, 0, 0], [-1, -1, -1], [1, 1, 0]]
    assert graph.train.tolist() == [0, 1, 2, 4]
    assert graph.notes[0].startswith("nodes have several labels: the default method is vat")
    assert graph.recipe["targets"] == "labels"


def test_with_a_column_label_labels_is_any_other_column(tables: Write) -> None:
    graph = bvat.load(tables("0,1", "1,2", "1,3", "0,4", ",5", column="label,labels"))
    assert graph.targets.name == "classes"
    assert graph.recipe["columns"]["names"] == ["labels", "x"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("", "", "", "", ""), "column 'labels': no node has a label"),
        (("|", "", "|", "", ""), "no node has a label"),
        (("a|b", "b|a", "", "", ""), "every labelled node has all labels, so there is nothing to learn"),
    ],
)
def test_labels_without_a_choice(tables: Write, lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        bvat.load(tables(*lines))


def test_a_label_without_a_training_node_is_named(tables: Write) -> None:
    folder = tables("red,train", "|,train", "red|blue,test", "|,test", ",", column="labels,split")
    assert "no training node has class 'blue', so it is never predicted" in bvat.load(folder).notes


def test_other_graphs_are_read_in_the_same_way(tables: Write) -> None:
    first = bvat.load(tables("red|round", "round", "|", "", "blue"))
    again = bvat.load(tables("blue", "", "", "", ""), like=first)
    assert again.labels[0].tolist() == [1, 0, 0]
    assert again.class_names == first.class_names
    with pytest.raises(GraphError, match=r"line 3.*the model does not know label 'green': remove it"):
        bvat.load(tables("red", "red|green", "", "", ""), like=first)
    without = tables("1", "2", "3", "4", "5", column="x")
    (without / "nodes.csv").write_text("id,x\na,1\nb,2\nc,3\nd,4\ne,5\n")
    unknown = bvat.load(without, like=first)
    assert unknown.labels.shape == (5, 3)
    assert not unknown.labelled.any()


def test_npz_of_benchmarks(tmp_path: Path) -> None:
    graph = songs()
    edges = graph.adjacency.to_scipy().tocsr()
    arrays: dict[str, Any] = {f"adj_{part}": getattr(edges, part) for part in ("data", "indices", "indptr")}
    arrays |= {"adj_shape": np.array(edges.shape), "attr_matrix": graph.features.to_dense().numpy()}
    named = {"labels": graph.labels.numpy(), "class_names": np.array(graph.class_names)}
    np.savez(tmp_path / "a.npz", **arrays, **named)
    found = bvat.load(tmp_path / "a.npz", val=20)
    assert torch.equal(found.labels, graph.labels)
    assert found.class_names == graph.class_names
    np.savez(tmp_path / "b.npz", **arrays)
    assert bvat.load(tmp_path / "b.npz", like=found).labels.shape == graph.labels.shape
    np.savez(tmp_path / "twice.npz", **arrays, **named | {"class_names": np.array(["folk"] * 4)})
    with pytest.raises(GraphError, match="two classes have the same name"):
        bvat.load(tmp_path / "twice.npz")
    np.savez(tmp_path / "c.npz", **arrays, labels=2 * graph.labels.numpy())
    with pytest.raises(GraphError, match=r"c\.npz: node \d+ has -?2 in column \d"):
        bvat.load(tmp_path / "c.npz")


def test_own_files_keep_them(tmp_path: Path) -> None:
    graph = songs()
    bvat.data.save_graph(graph, tmp_path / "songs.npz")
    found = bvat.load(tmp_path / "songs.npz")
    assert torch.equal(found.labels, graph.labels)
    assert found.targets is graph.targets
    wrong = dict(np.load(tmp_path / "songs.npz"))
    wrong["labels"][0, 0] = 7
    np.savez(tmp_path / "wrong.npz", **wrong)
    with pytest.raises(DataError, match="node 0 has 7 in column 0 of the labels"):
        bvat.load(tmp_path / "wrong.npz")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int64])
def test_torch_geometric(dtype: torch.dtype) -> None:
    data_class = pytest.importorskip("torch_geometric.data").Data
    graph = songs()
    labels = graph.labels.clamp_min(0).to(dtype)
    masks = {f"{part}_mask": torch.zeros(160, dtype=torch.bool) for part in ("train", "val", "test")}
    for part in ("train", "val", "test"):
        masks[f"{part}_mask"][getattr(graph, part)] = True
    data = data_class(x=graph.as_data.x, edge_index=graph.as_data.edge_index, y=labels, **masks)
    found = bvat.from_pyg(data, class_names=graph.class_names)
    assert torch.equal(found.labels, graph.labels.clamp_min(0))
    assert torch.equal(found.train, graph.train)
    assert torch.equal(bvat.to_pyg(found).y, found.labels)


def test_splits_are_spread_over_the_rarest_labels() -> None:
    graph = songs(400)
    drawn = resplit(graph, 10, 60, 0)
    rarest = graph.targets.strata(graph.labels)
    assert torch.bincount(rarest[drawn.train], minlength=4).tolist() == [10, 10, 10, 0]  # no rock without pop
    assert drawn.labels[drawn.train].sum(0).min() >= 10
    sizes = torch.stack([torch.bincount(rarest[part.val], minlength=4) for part in folds(drawn, 5)])
    assert int((sizes.amax(0) - sizes.amin(0)).max()) <= 1
    assert not set(drawn.train.tolist()) & set(drawn.val.tolist())


def test_tables_written_and_read(tmp_path: Path) -> None:
    graph = songs()
    write_songs(tmp_path / "songs", graph)
    found = bvat.load(tmp_path / "songs")
    known = torch.cat([graph.train, graph.val, graph.test])
    assert found.class_names == graph.class_names
    assert torch.equal(found.labels[known], graph.labels[known])
    assert int(found.labelled.sum()) == known.numel()
    assert ReadOptions().chooses_split is False
