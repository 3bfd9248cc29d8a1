from __future__ import annotations

import pytest
import torch

from bvat.errors import SettingsError
from bvat.parts.batches import open_batches
from bvat.training.loop import train
from bvat.training.settings import preset
from cli_helpers import bvat
from graph_helpers import random_graph
from rank_helpers import write

SETTINGS = preset("", "vat", epochs=4, pretrain=0, ramp=0, beta=1.0, confidence=0.0)


@pytest.mark.parametrize("dense", [False, True])
def test_a_batch_of_all_parts_is_the_graph(dense, tmp_path) -> None:
    graph = random_graph(dense=dense)
    parts = open_batches(write(graph, 4, tmp_path / "parts", "random"), 4)
    batch = parts.batch(0)
    order = parts.order
    assert torch.equal(batch.propagation.to_dense(), graph.propagation.to_dense()[order][:, order])
    assert torch.equal(batch.features.to_dense(), graph.features.to_dense()[order])
    assert torch.equal(batch.labels, graph.labels[order])
    for name in ("train", "val", "test"):
        assert set(order[getattr(batch, name)].tolist()) == set(getattr(graph, name).tolist())
        assert torch.equal(order[getattr(parts, name)], getattr(graph, name))


def test_a_batch_has_the_edges_inside_it_only_and_labels(tmp_path) -> None:
    graph = random_graph()
    parts = open_batches(write(graph, 5, tmp_path / "parts", "random"), 2)
    seen = set()
    for epoch in range(20):
        batch = parts.batch(epoch)
        assert batch.train.numel()
        assert torch.equal(batch.propagation.to_dense(), batch.propagation.to_dense().t())
        seen.add(batch.labels.numel())
    pieces = list(parts.pieces())
    assert sum(piece.num_nodes for piece in pieces) == graph.num_nodes
    assert torch.equal(torch.cat([piece.labels for piece in pieces]), parts.labels)
    assert sum(piece.propagation.nnz for piece in pieces) < graph.propagation.nnz


def test_training_on_batches_repeats_and_learns(tmp_path) -> None:
    folder = write(random_graph(), 4, tmp_path / "parts", "random")
    first, second = (train(open_batches(folder, 2), SETTINGS) for _ in range(2))
    assert all(torch.equal(first.weights[name], second.weights[name]) for name in first.weights)
    assert len(first.metrics) == 4


def test_batch_parts_on_the_command_line(tmp_path, capsys) -> None:
    folder = write(random_graph(), 4, tmp_path / "parts")
    run = tmp_path / "run"
    options = ["--method", "none", "--epochs", "3", "--pretrain", "0", "--jobs", "1", "--no-report"]
    options += ["--out", str(run)]
    for arguments, code in (
        ([str(folder), "--batch-parts", "2", *options], 0),
        ([str(folder), "--batch-parts", "9", *options], 2),
        (["nowhere.npz", "--batch-parts", "2", *options], 2),
    ):
        assert bvat(["train", *arguments], capsys)[0] == code
    assert bvat(["predict", str(run), "--out", str(tmp_path / "predictions.csv")], capsys)[0] == 0


def test_impossible_sizes_are_refused(tmp_path) -> None:
    folder = write(random_graph(), 2, tmp_path / "parts")
    for size in (0, 3):
        with pytest.raises(SettingsError, match="1 to 2"):
            open_batches(folder, size)
