"""Graphs without what a search must not know."""

from __future__ import annotations

import dataclasses

import torch

from bvat.graph import UNKNOWN, Graph


def blind(graph: Graph) -> Graph:
    """Return the graph without test nodes, and with the labels of train and val nodes only."""
    labels = torch.full_like(graph.labels, UNKNOWN)
    for nodes in (graph.train, graph.val):
        labels[nodes] = graph.labels[nodes]
    return dataclasses.replace(graph, labels=labels, test=graph.test[:0])
