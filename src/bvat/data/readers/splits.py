"""A split for labels that come without one: stratified, seeded, and sensible where labels are few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bvat.data.readers.options import TRAIN_PER_CLASS, VAL, ReadOptions

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Node numbers, where they come from, and what there is to say about them.

    Shapes: train, val, test int64, ascending.
    """

    train: IntArray
    val: IntArray
    test: IntArray
    origin: str = "given"
    notes: tuple[str, ...] = field(default=())


def stratified_split(labels: IntArray, class_names: Sequence[str], options: ReadOptions) -> Split:
    """Draw ``train_per_class`` nodes of each class, then ``val`` nodes in the proportions of what is left.

    All other labelled nodes are for testing. With the default of 20 a class, a class of s labels gives at
    most half of them, rounded up, so that one label goes to training and ten leave five to measure on; a
    number that was asked for is taken as far as there are labels. In the same way validation by default gets
    at most half of what is left.

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
            small.append(f"{name!r} {taken[-1]} of {nodes.size}")
    if small:
        shown = ", ".join(small[:5]) + (f" and {len(small) - 5} more" if len(small) > 5 else "")
        notes.append(f"fewer than {wanted} training nodes in small classes: {shown}")
    left = np.array([nodes.size - count for nodes, count in zip(members, taken, strict=True)], dtype=np.int64)
    val = _validation_size(int(left.sum()), options, notes)
    shares = _proportional(left, val)
    train = [nodes[:count] for nodes, count in zip(members, taken, strict=True)]
    validate = [n[t : t + v] for n, t, v in zip(members, taken, shares, strict=True)]
    test = [n[t + v :] for n, t, v in zip(members, taken, shares, strict=True)]
    number = f"at most {wanted}" if small else str(wanted)
    origin = f"drawn: {number} a class for training, {val} for validation, seed {options.split_seed}"
    if val == 0:
        notes.append("no labels are left for validation: label more nodes to see how well it works")
    return Split(_joined(train), _joined(validate), _joined(test), origin, tuple(notes))


def _validation_size(left: int, options: ReadOptions, notes: list[str]) -> int:
    wanted = VAL if options.val is None else options.val
    val = min(wanted, left if options.val is not None else (left + 1) // 2)
    if val < wanted:
        notes.append(f"{val} validation nodes instead of {wanted}: {left} labels are left after training")
    return val


def _proportional(sizes: IntArray, total: int) -> list[int]:
    """Divide ``total`` in the proportions of ``sizes`` (C), none exceeded: largest remainders first."""
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
