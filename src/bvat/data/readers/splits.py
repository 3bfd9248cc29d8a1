"""Draw a stratified, seeded split that also works with few labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bvat.data.readers.options import TRAIN_PER_CLASS, VAL, ReadOptions
from bvat.data.readers.table import shown

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """The nodes of a split, its origin, and notes for the user.

    Shapes: train, val, test int64, ascending.
    """

    train: IntArray
    val: IntArray
    test: IntArray
    origin: str = "given"
    notes: tuple[str, ...] = field(default=())


def stratified_split(labels: IntArray, class_names: Sequence[str], options: ReadOptions) -> Split:
    """Draw ``train_per_class`` nodes of each class, then ``val`` of the remaining nodes, stratified.

    All other labelled nodes are test nodes. With the default of 20 training nodes per class, at most half of
    the labels of a class, rounded up, are used for training; a number given explicitly is limited only by
    the number of labels. In the same way, validation by default gets at most half of the remaining nodes.

    Shapes: labels int64 (N), -1 for unknown.
    """
    rng = np.random.default_rng(options.split_seed)
    members = [rng.permutation(np.flatnonzero(labels == k)) for k in range(len(class_names))]
    wanted = options.train_per_class or TRAIN_PER_CLASS
    notes = []
    taken, small = [], []
    for name, nodes in zip(class_names, members, strict=True):
        allowed = nodes.size if options.train_per_class is not None else (nodes.size + 1) // 2
        taken.append(min(wanted, allowed))
        if taken[-1] < wanted:
            small.append(f"{shown(name)} {taken[-1]} of {nodes.size}")
    if small:
        some = ", ".join(small[:5]) + (f" and {len(small) - 5} more" if len(small) > 5 else "")
        notes.append(f"fewer than {wanted} training nodes in small classes: {some}")
    left = np.array([nodes.size - count for nodes, count in zip(members, taken, strict=True)], dtype=np.int64)
    val = _validation_size(int(left.sum()), options, notes)
    shares = _proportional(left, val)
    train = [nodes[:count] for nodes, count in zip(members, taken, strict=True)]
    validate = [n[t : t + v] for n, t, v in zip(members, taken, shares, strict=True)]
    test = [n[t + v :] for n, t, v in zip(members, taken, shares, strict=True)]
    number = f"at most {wanted}" if small else str(wanted)
    origin = f"drawn: {number} per class for training, {val} for validation, seed {options.split_seed}"
    if val == 0:
        notes.append("no labels are left for validation: label more nodes to measure the accuracy")
    return Split(_joined(train), _joined(validate), _joined(test), origin, tuple(notes))


def _validation_size(left: int, options: ReadOptions, notes: list[str]) -> int:
    wanted = VAL if options.val is None else options.val
    val = min(wanted, left if options.val is not None else (left + 1) // 2)
    if val < wanted:
        notes.append(f"{val} validation nodes instead of {wanted}: {left} labels are left after training")
    return val


def _proportional(sizes: IntArray, total: int) -> list[int]:
    """Divide ``total`` proportionally to ``sizes`` (C) without exceeding them, by largest remainders."""
    if total == 0:
        return [0] * sizes.size
    exact = sizes * (total / int(sizes.sum()))
    parts = np.minimum(np.floor(exact).astype(np.int64), sizes)
    order = np.argsort(-(exact - parts), kind="stable")
    for k in [*order, *order]:
        if int(parts.sum()) == total:
            break
        if parts[k] < sizes[k]:
            parts[k] += 1
    return [int(part) for part in parts]


def _joined(parts: list[IntArray]) -> IntArray:
    return np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
