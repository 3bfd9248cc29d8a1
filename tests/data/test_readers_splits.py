from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reader_files import write

from bvat.data import load
from bvat.data.splits import ReadOptions, stratified_split
from bvat.errors import GraphError, SettingsError


def test_a_split_column_wins(tmp_path: Path) -> None:
    nodes = "id,label,split\na,x,train\nb,y,Train\nc,x,val\nd,y,test\ne,x,\nf,,test\ng,,\n"
    graph = load(write(tmp_path / "mine", nodes, "source,target\na,b\n"), train_per_class=1)
    assert (graph.train.tolist(), graph.val.tolist(), graph.test.tolist()) == ([0, 1], [2], [3])
    assert graph.validation == "given by the split column of nodes.csv"
    assert {
        "test nodes without a label, predicted but not evaluated: 1",
        "labelled nodes outside the split, whose labels are not used: 1",
        "the split column of nodes.csv is used; split options are ignored",
    } <= set(graph.notes)
    graph = load(write(tmp_path / "mine", "id,label,split\na,x,train\nb,y,test\n", "source,target\na,b\n"))
    assert "no training node has class 'y', so it is never predicted" in graph.notes
    graph = load(write(tmp_path / "mine", "id,label,split\na,x,\nb,y,\n", "source,target\na,b\n"))
    assert graph.train.tolist() == [0, 1]  # an empty column is no split


def test_all_labels_are_for_training_unless_some_are_held_out(tmp_path: Path) -> None:
    nodes = "id,label\n" + "".join(f"n{k},{'xy'[k % 2]}\n" for k in range(80)) + "new,\n"
    mine = write(tmp_path / "mine", nodes, "source,target\nn1,n2\n")
    graph = load(mine)
    assert graph.train.tolist() == list(range(80))
    assert not len(graph.val) + len(graph.test)
    assert graph.validation == "none: all 80 labelled nodes are training nodes"
    assert not any("nothing is left to predict" in note for note in graph.notes)
    graph = load(mine, test=20)
    assert (len(graph.train), len(graph.val), len(graph.test)) == (60, 0, 20)
    assert np.bincount(graph.labels[graph.test]).tolist() == [10, 10]
    assert load(mine, test=20, split_seed=1).test.tolist() != graph.test.tolist()
    graph = load(mine, test=3, val=5)
    assert (len(graph.train), len(graph.val), len(graph.test)) == (72, 5, 3)
    assert graph.validation == "drawn: 5 for validation, 3 for testing, seed 0; all others train"
    with pytest.raises(
        GraphError, match=r"80 nodes cannot be held out of 80 labelled ones.*at most 78 for val"
    ):
        load(mine, test=60, val=20)
    with pytest.raises(SettingsError, match="split_seed has no effect where all labelled nodes are training"):
        load(mine, split_seed=1)
    whole = load(write(tmp_path / "mine", nodes.replace("new,\n", ""), "source,target\nn1,n2\n"))
    assert any("so nothing is left to predict: hold some out" in note for note in whole.notes)


@given(st.lists(st.integers(1, 60), min_size=2, max_size=6), st.integers(0, 300), st.integers(0, 300))
def test_nodes_held_out(sizes: list[int], val: int, test: int) -> None:
    labels = np.concatenate([np.repeat(np.arange(len(sizes)), sizes), np.full(7, -1)])
    names, options = [str(k) for k in range(len(sizes))], ReadOptions(val=val, test=test)
    if val + test > sum(sizes) - len(sizes):
        with pytest.raises(GraphError, match="cannot be held out"):
            stratified_split(labels, names, options)
        return
    split = stratified_split(labels, names, options)
    assert (len(split.val), len(split.test)) == (val, test)
    used = np.concatenate([split.train, split.val, split.test])
    assert sorted(used) == np.flatnonzero(labels >= 0).tolist()
    assert np.bincount(labels[split.train], minlength=len(sizes)).min() >= 1


@given(
    st.lists(st.integers(1, 60), min_size=2, max_size=6),
    st.integers(1, 40),
    st.none() | st.integers(0, 100),
    st.integers(0, 5),
)
def test_drawn_splits(sizes: list[int], per_class: int, val: int | None, seed: int) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    labels = np.concatenate([labels, np.full(7, -1)])
    options = ReadOptions(None, per_class, val, seed)
    split = stratified_split(labels, [str(k) for k in range(len(sizes))], options)
    used = np.concatenate([split.train, split.val, split.test])
    assert sorted(used) == np.flatnonzero(labels >= 0).tolist()
    for k, size in enumerate(sizes):
        taken = int((labels[split.train] == k).sum())
        assert taken == min(per_class, size)
        share = (size - taken) * len(split.val) / max(1, len(used) - len(split.train))
        assert abs(int((labels[split.val] == k).sum()) - share) <= 1
    left = len(used) - len(split.train)
    assert len(split.val) == (min(500, (left + 1) // 2) if val is None else min(val, left))
    again = stratified_split(labels, [str(k) for k in range(len(sizes))], options)
    assert np.array_equal(split.val, again.val)


def test_split_seeds_differ() -> None:
    labels = np.repeat([0, 1], 100)
    one, two = (stratified_split(labels, "ab", ReadOptions(train_per_class=20, split_seed=k)) for k in (0, 1))
    assert not np.array_equal(one.train, two.train)
    assert len(one.train) == 40
    assert one.origin == "drawn: 20 per class for training, 80 for validation, seed 0"
