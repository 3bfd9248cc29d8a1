"""Which labelled nodes train: all of them, or a stratified, seeded split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bvat.data.readers.options import VAL, ReadOptions
from bvat.data.readers.table import shown
from bvat.errors import GraphError

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
    """Draw a split; without options all labelled nodes are training nodes.

    ``val`` and ``test`` hold that many nodes out, and all others train. With ``train_per_class`` the split is
    that of an experiment: so many training nodes of each class, then ``val`` of the remaining nodes (default
    500, at most half of them), then ``test`` (default all).

    Shapes: labels int64 (N), -1 for unknown.

    Raises:
        GraphError: more nodes are to be held out than can be, with a training node left in each class.
    """
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
    ends = np.cumsum([kept, shares, tested], axis=0).tolist()
    train, validate, tests = (
        [nodes[low:high] for nodes, low, high in zip(members, start, end, strict=True)]
        for start, end in zip([[0] * sizes.size, *ends], ends, strict=False)
    )
    return Split(_joined(train), _joined(validate), _joined(tests), origin, tuple(notes))


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
    kept = sizes - np.array(_proportional(spare, val + test), dtype=np.int64)
    words = f"drawn: {val} for validation, {test} for testing, seed {options.split_seed}; all others train"
    return kept, val, test, words


def _experiment(
    sizes: IntArray, class_names: Sequence[str], options: ReadOptions, notes: list[str]
) -> tuple[IntArray, int, int, str]:
    """Return the training nodes of each class (C), the numbers held out, and where they come from."""
    wanted = options.train_per_class or 0
    kept = np.minimum(sizes, wanted)
    small = [
        f"{shown(name)} {size}"
        for name, size in zip(class_names, sizes.tolist(), strict=True)
        if size < wanted
    ]
    if small:
        some = ", ".join(small[:5]) + (f" and {len(small) - 5} more" if len(small) > 5 else "")
        notes.append(f"fewer than {wanted} training nodes in small classes: {some}")
    left = int((sizes - kept).sum())
    val = min(VAL, (left + 1) // 2) if options.val is None else min(options.val, left)
    if val < (VAL if options.val is None else options.val):
        notes.append(
            f"{val} validation nodes instead of {VAL if options.val is None else options.val}: {left} labels "
            "are left after training"
        )
    test = left - val if options.test is None else options.test
    if test > left - val:
        raise GraphError(f"{test} test nodes are asked for, but {left - val} labels are left: use fewer")
    number = f"at most {wanted}" if small else str(wanted)
    origin = f"drawn: {number} per class for training, {val} for validation, seed {options.split_seed}"
    return kept, val, test, origin


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
