"""One class or several labels per node, and the sentences about labels that are neither."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import bvat
from bvat.errors import GraphError
from bvat.graph import targets_of
from bvat.graph.targets import ONE_CLASS, SEVERAL_LABELS
from several_labels import songs


def drawn(nodes: int = 30, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(nodes, classes, generator=generator, dtype=torch.float64)
    return logits, torch.randint(0, 2, (nodes, classes), generator=generator)


def test_the_shape_says_which() -> None:
    graph = songs()
    assert graph.targets is SEVERAL_LABELS
    assert targets_of(graph.labels.numpy()) is SEVERAL_LABELS
    assert targets_of(graph.labels[:, 0]) is ONE_CLASS
    assert (graph.num_nodes, graph.num_classes) == (160, 4)
    assert "4 labels" in repr(graph)
    assert "<th>labels</th>" in graph._repr_html_()
    assert int(graph.labelled.sum()) == int((graph.labels[:, 0] >= 0).sum())


def test_several_labels_are_as_many_problems_of_two_classes() -> None:
    """Loss, probabilities and decisions are those of the logits (0, l) of every label."""
    logits, labels = drawn()
    pairs = torch.stack([torch.zeros_like(logits), logits], 2).reshape(-1, 2)
    each = F.cross_entropy(pairs, labels.flatten(), reduction="none").view(30, 3)
    torch.testing.assert_close(SEVERAL_LABELS.loss(logits, labels), each.sum(1).mean())
    p = SEVERAL_LABELS.probabilities(logits)
    torch.testing.assert_close(p.flatten(), torch.softmax(pairs, 1)[:, 1])
    assert SEVERAL_LABELS.predicted(logits).flatten().tolist() == pairs.argmax(1).tolist()
    assert torch.equal(SEVERAL_LABELS.decided(p), SEVERAL_LABELS.predicted(logits))
    found, true = SEVERAL_LABELS.decisions(1 - p.numpy(), p.numpy(), labels.numpy())
    np.testing.assert_allclose(found, torch.softmax(pairs, 1).numpy())
    assert true.tolist() == labels.flatten().tolist()


def test_one_label_has_the_gradient_of_binary_cross_entropy() -> None:
    logits, labels = drawn(classes=1)
    logits.requires_grad_()
    (found,) = torch.autograd.grad(SEVERAL_LABELS.loss(logits, labels), logits)
    (expected,) = torch.autograd.grad(F.binary_cross_entropy_with_logits(logits, labels.double()), logits)
    torch.testing.assert_close(found, expected)


def test_strata_are_the_rarest_labels() -> None:
    labels = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 0, 1], [1, 1, 1], [0, 0, 0], [-1, -1, -1]])
    # label 0 has four nodes, labels 1 and 2 have two each: the first of these comes first
    assert SEVERAL_LABELS.strata(labels).tolist() == [1, 0, 2, 1, 0, -1]
    assert SEVERAL_LABELS.strata(labels.numpy()).tolist() == [1, 0, 2, 1, 0, -1]
    one = torch.tensor([2, 0, -1])
    assert ONE_CLASS.strata(one) is one


def test_labels_get_the_numbers_of_another_graph() -> None:
    labels = torch.tensor([[1, 0], [0, 1], [-1, -1]])
    found = SEVERAL_LABELS.renumbered(labels, [2, 0], 3)
    assert found.tolist() == [[0, 0, 1], [1, 0, 0], [-1, -1, -1]]


FAULTS: dict[str, tuple[Any, str]] = {
    "two": ([[0, 2], [1, 1], [1, 0]], "node 0 has 2 in column 1 of the labels: use 0 and 1"),
    "NaN": ([[0, 1], [1, math.nan], [1, 0]], "node 1 has nan in column 1 of the labels"),
    "partly unknown": ([[0, 1], [1, 1], [-1, 0]], "only some labels of node 2 are known"),
    "one-hot": ([[0, 1], [1, 0], [1, 0]], "where each node has one class, as here: give the class numbers"),
    "text": ([["a", "b"], ["a", ""], ["", ""]], "several labels per node must be numbers, 0 or 1"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(fault: str) -> None:
    labels, message = FAULTS[fault]
    edges = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    with pytest.raises(GraphError, match=message):
        bvat.Graph.build(np.eye(3), edges, labels, train=[0])
    with pytest.raises(GraphError, match="one class name|" * (fault == "one-hot") + message):
        bvat.from_scipy(edges, np.eye(3), labels, train=[0])


def test_a_training_node_needs_labels_and_names_need_columns() -> None:
    labels = [[0, 1], [1, 1], [-1, -1]]
    edges = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    with pytest.raises(GraphError, match="node 2 of the train split has no label"):
        bvat.Graph.build(np.eye(3), edges, labels, train=[0, 2])
    with pytest.raises(GraphError, match="do not fit 3 class names"):
        bvat.Graph.build(np.eye(3), edges, labels, train=[0], class_names=["a", "b", "c"])
    with pytest.raises(GraphError, match="labels have 2 columns, but there are 3 class names"):
        bvat.from_scipy(edges, np.eye(3), labels, class_names=["a", "b", "c"])
    with pytest.raises(GraphError, match="no node has a label"):
        bvat.from_scipy(edges, np.eye(3), np.full((3, 2), -1))
    with pytest.raises(GraphError, match="every labelled node has no label"):
        bvat.from_scipy(edges, np.eye(3), np.zeros((3, 2)))
