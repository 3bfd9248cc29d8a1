from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from reader_files import write

from bvat.data import load
from bvat.data.readers.options import ReadOptions
from bvat.data.readers.splits import stratified_split


def test_a_split_column_wins(tmp_path: Path) -> None:
    nodes = "id,label,split\na,x,train\nb,y,Train\nc,x,val\nd,y,test\ne,x,\nf,,test\ng,,\n"
    graph = load(write(tmp_path / "mine", nodes, "source,target\n"), train_per_class=1)
    assert (graph.train.tolist(), graph.val.tolist(), graph.test.tolist()) == ([0, 1], [2], [3])
    assert graph.validation == "given by the split column of nodes.csv"
    assert {
        "test nodes without a label, predicted but not evaluated: 1",
        "labelled nodes outside the split, whose labels are not used: 1",
        "the split column of nodes.csv is used; split options are ignored",
    } <= set(graph.notes)
    graph = load(write(tmp_path / "mine", "id,label,split\na,x,train\nb,y,test\n", "source,target\n"))
    assert "no training node has class 'y', so it is never predicted" in graph.notes
    graph = load(write(tmp_path / "mine", "id,label,split\na,x,\nb,y,\n", "source,target\n"))
    assert graph.train.tolist() == [0, 1]  # an empty column is no split


@given(
    st.lists(st.integers(1, 60), min_size=2, max_size=6),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(0, 100),
    st.integers(0, 5),
)
def test_drawn_splits(sizes: list[int], per_class: int | None, val: int | None, seed: int) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    labels = np.concatenate([labels, np.full(7, -1)])
    options = ReadOptions(None, per_class, val, seed)
    split = stratified_split(labels, [str(k) for k in range(len(sizes))], options)
    used = np.concatenate([split.train, split.val, split.test])
    assert sorted(used) == np.flatnonzero(labels >= 0).tolist()
    for k, size in enumerate(sizes):
        taken = int((labels[split.train] == k).sum())
        assert taken == min(per_class or 20, size if per_class else (size + 1) // 2)
        share = (size - taken) * len(split.val) / max(1, len(used) - len(split.train))
        assert abs(int((labels[split.val] == k).sum()) - share) <= 1
    left = len(used) - len(split.train)
    assert len(split.val) == (min(500, (left + 1) // 2) if val is None else min(val, left))
    again = stratified_split(labels, [str(k) for k in range(len(sizes))], options)
    assert np.array_equal(split.val, again.val)


def test_split_seeds_differ() -> None:
    labels = np.repeat([0, 1], 100)
    one, two = (stratified_split(labels, "ab", ReadOptions(split_seed=k)) for k in (0, 1))
    assert not np.array_equal(one.train, two.train)
    assert len(one.train) == 40
    assert one.origin == "drawn: 20 per class for training, 80 for validation, seed 0"
