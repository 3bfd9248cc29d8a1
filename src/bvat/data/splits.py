"""Which labelled nodes train: all, or a stratified, seeded split; new splits of a graph, and folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bvat.errors import GraphError, SettingsError, shown
from bvat.graph import Graph, targets_of

IntArray = NDArray[np.int64]
PARTS = ("train", "val", "test")
VAL = 500
"""Validation nodes beside a number of training nodes per class."""


@dataclass(frozen=True)
class ReadOptions:
    """How to read a graph. Options about the split apply if the files contain none."""

    text: str | None = None
    """A text column of the nodes file to turn into TF-IDF features."""
    train_per_class: int | None = None
    """Training nodes per class; None: all labelled nodes that are not held out."""
    val: int | None = None
    """Validation nodes; None: none, or with ``train_per_class`` 500, at most half of the rest."""
    split_seed: int = 0
    """Same seed, same split."""
    test: int | None = None
    """Test nodes; None: none, or with ``train_per_class`` all that is left."""
    directed: bool = False
    """Whether edges keep their direction."""
    edge_attr: bool = True
    """Whether to read attributes of edges."""
    like: Mapping[str, Any] | None = None
    """``graph.recipe`` of the graph that a model was trained on, for the same features and directions."""

    def __post_init__(self) -> None:
        for name, low in (("train_per_class", 1), ("val", 0), ("test", 0), ("split_seed", 0)):
            value = getattr(self, name)
            absent = value is None and name != "split_seed"
            if not absent and (type(value) is not int or value < low):
                raise SettingsError(f"{name} is {value!r}: use a whole number from {low} up")
        if self.text is not None and not (isinstance(self.text, str) and self.text.strip()):
            raise SettingsError(f"text is {self.text!r}: give the name of a column of the nodes file")
        if self.split_seed and self.train_per_class is None and not self.val and not self.test:
            raise SettingsError(
                "split_seed has no effect where all labelled nodes are training nodes: use it with "
                "train_per_class, val or test, or leave it out"
            )

    def refuse(self, what: str) -> None:
        """Raise SettingsError if any option is set, for graphs that are read as they are."""
        given = [
            f.name
            for f in fields(self)
            if getattr(self, f.name) != f.default and f.name not in ("edge_attr", "like")
        ]
        if given:
            raise SettingsError(f"{what} has its own edges, split and features: remove {', '.join(given)}")

    @property
    def chooses_split(self) -> bool:
        chosen = (self.train_per_class, self.val, self.test)
        return bool(self.split_seed) or any(number is not None for number in chosen)

    @property
    def keeps_directions(self) -> bool:
        return self.directed or bool((self.like or {}).get("directed"))


@dataclass(frozen=True)
class Split:
    """The nodes of a split, its origin, and notes for the user.

    Shapes: train, val, test int64, ascending.
    """

    train: IntArray
    val: IntArray
    test: IntArray
    origin: str = "given"
    notes: tuple[str, ...] = ()


def marks(splits: Sequence[Split], nodes: int) -> torch.Tensor | None:
    """Return several splits as ``Graph.splits`` has them, int8 (S, N); None for fewer than two."""
    if len(splits) < 2:
        return None
    found = torch.zeros(len(splits), nodes, dtype=torch.int8)
    for row, split in zip(found, splits, strict=True):
        for mark, chosen in enumerate((split.train, split.val, split.test), start=1):
            row[torch.from_numpy(chosen)] = mark
    return found


def stratified_split(labels: IntArray, class_names: Sequence[str], options: ReadOptions) -> Split:
    """Draw a split; without options all labelled nodes are training nodes.

    ``val`` and ``test`` hold that many nodes out, and all others train. With ``train_per_class`` the split is
    that of an experiment: so many training nodes of each class, then ``val`` of the remaining nodes (default
    500, at most half of them), then ``test`` (default all).

    A node with several labels counts for its rarest one.

    Shapes: labels int64 (N) or (N, C), -1 for unknown.
    """
    labels = targets_of(labels).strata(labels)
    rng = np.random.default_rng(options.split_seed)
    members = [rng.permutation(np.flatnonzero(labels == k)) for k in range(len(class_names))]
    sizes = np.array([nodes.size for nodes in members], dtype=np.int64)
    notes: list[str] = []
    if options.train_per_class is None:
        kept, val, test, origin = _held_out(sizes, labels.size, options, notes)
    else:
        kept, val, test, origin = _experiment(sizes, class_names, options, notes)
    shares = _proportional(sizes - kept, val)
    tested = _proportional(sizes - kept - shares, test)
    ends = np.cumsum([kept, shares, tested], axis=0)
    pieces = [np.split(nodes, end)[:3] for nodes, end in zip(members, ends.T, strict=True)]
    train, validate, tests = (np.sort(np.concatenate(part)) for part in zip(*pieces, strict=True))
    return Split(train, validate, tests, origin, tuple(notes))


def _held_out(
    sizes: IntArray, nodes: int, options: ReadOptions, notes: list[str]
) -> tuple[IntArray, int, int, str]:
    """Return the training nodes of each class (C), the numbers held out, and where they come from."""
    val, test, labelled = options.val or 0, options.test or 0, int(sizes.sum())
    spare = np.maximum(sizes - 1, 0)
    if val + test > spare.sum():
        raise GraphError(
            f"{val + test} nodes cannot be held out of {labelled} labelled ones with a training node left in "
            f"each class: use at most {spare.sum()} for val and test together"
        )
    if not val + test:
        if labelled == nodes:
            notes.append(
                "all nodes have a label and are training nodes, so nothing is left to predict: hold some out "
                "to measure on with test (--test N)"
            )
        return sizes, 0, 0, f"none: all {labelled} labelled nodes are training nodes"
    kept = sizes - _proportional(spare, val + test)
    words = f"drawn: {val} for validation, {test} for testing, seed {options.split_seed}; all others train"
    return kept, val, test, words


def _experiment(
    sizes: IntArray, class_names: Sequence[str], options: ReadOptions, notes: list[str]
) -> tuple[IntArray, int, int, str]:
    wanted = options.train_per_class or 0
    kept = np.minimum(sizes, wanted)
    small = [f"{shown(name)} {n}" for name, n in zip(class_names, sizes, strict=True) if 0 < n < wanted]
    if small:
        some = ", ".join(small[:5]) + (f" and {len(small) - 5} more" if len(small) > 5 else "")
        notes.append(f"fewer than {wanted} training nodes in small classes: {some}")
    left = int((sizes - kept).sum())
    asked, most = (VAL, (left + 1) // 2) if options.val is None else (options.val, left)
    val = min(asked, most)
    if val < asked:
        notes.append(f"{val} validation nodes instead of {asked}: {left} labels are left after training")
    test = left - val if options.test is None else options.test
    if test > left - val:
        raise GraphError(f"{test} test nodes are asked for, but {left - val} labels are left: use fewer")
    number = f"at most {wanted}" if small else str(wanted)
    origin = f"drawn: {number} per class for training, {val} for validation, seed {options.split_seed}"
    return kept, val, test, origin


def _proportional(sizes: IntArray, total: int) -> IntArray:
    """Divide ``total`` proportionally to ``sizes`` (C) without exceeding them, by largest remainders."""
    exact = sizes * (total / max(1, int(sizes.sum())))
    parts: IntArray = np.minimum(np.floor(exact).astype(np.int64), sizes)
    order = np.argsort(-(exact - parts), kind="stable")
    for k in [*order, *order]:
        parts[k] += parts.sum() < total and parts[k] < sizes[k]
    return parts


def resplit(graph: Graph, train_per_class: int, val: int, seed: int) -> Graph:
    """Draw a new split: some training nodes per class, ``val`` validation nodes, the rest test nodes."""
    if int(graph.labelled.sum()) <= train_per_class * graph.num_classes:
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
    train, val_nodes, test = map(torch.from_numpy, (drawn.train, drawn.val, drawn.test))
    return replace(graph, train=train, val=val_nodes, test=test, validation=drawn.origin)


def folds(graph: Graph, count: int, seed: int = 0) -> list[Graph]:
    """Return the graph once per fold of a cross-validation over its training and validation nodes.

    Each of these nodes is a validation node in one fold and a training node in the others; classes are spread
    evenly over the folds. The only label of a class is a training node in all of them: a model that has never
    seen its class cannot predict it.
    """
    pool = torch.cat([graph.train, graph.val])
    labels = graph.targets.strata(graph.labels[pool])
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
            parts.append(replace(graph, train=train, val=val, validation=said))
    return parts
