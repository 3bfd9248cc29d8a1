"""Random splits of graphs whose labels are known."""

from __future__ import annotations

import dataclasses

import torch

from bvat.data.readers.options import ReadOptions
from bvat.data.readers.splits import stratified_split
from bvat.errors import GraphError
from bvat.graph import UNKNOWN, Graph


def resplit(graph: Graph, train_per_class: int, val: int, seed: int) -> Graph:
    """Return the graph with a new random split: some training nodes per class, ``val`` nodes, the rest test.

    Raises:
        GraphError: the labels are too few to leave nodes for validation and for testing.
    """
    if int((graph.labels != UNKNOWN).sum()) <= train_per_class * graph.num_classes:
        raise GraphError(
            f"{graph.name} has too few labels for {train_per_class} training nodes per class: use fewer"
        )
    options = ReadOptions(None, train_per_class, val, seed)
    drawn = stratified_split(graph.labels.cpu().numpy(), graph.class_names, options)
    if not drawn.test.size:  # for all seeds: how many nodes each part has does not depend on them
        half = drawn.val.size // 2
        raise GraphError(
            f"{train_per_class} training nodes per class and {val} validation nodes leave none of the "
            f"{drawn.train.size + drawn.val.size} labels of {graph.name} for testing: use fewer"
            + (f", for example {half} for validation" if half else "")
        )
    return dataclasses.replace(
        graph,
        train=torch.from_numpy(drawn.train),
        val=torch.from_numpy(drawn.val),
        test=torch.from_numpy(drawn.test),
        validation=drawn.origin,
    )


def folds(graph: Graph, count: int, seed: int = 0) -> list[Graph]:
    """Return the graph once per fold of a cross-validation over its training and validation nodes.

    Each of these nodes is a validation node in one fold and a training node in the others; classes are spread
    evenly over the folds. The only label of a class is a training node in all of them: a model that has never
    seen its class cannot predict it.
    """
    pool = torch.cat([graph.train, graph.val])
    labels = graph.labels[pool]
    generator = torch.Generator().manual_seed(seed)
    fold = torch.empty_like(pool)
    position = 0
    for k in range(graph.num_classes):
        members = torch.nonzero(labels == k).flatten()
        members = members[torch.randperm(members.numel(), generator=generator)]
        if members.numel() == 1:
            fold[members] = -1
            continue
        fold[members] = (torch.arange(members.numel()) + position) % count
        position += members.numel()
    parts = []
    for number in range(count):
        train, val = pool[fold != number].sort().values, pool[fold == number].sort().values
        if train.numel() and val.numel():
            said = f"fold {number + 1} of {count} of the labelled nodes"
            parts.append(dataclasses.replace(graph, train=train, val=val, validation=said))
    return parts
