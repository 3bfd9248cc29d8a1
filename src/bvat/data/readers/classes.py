"""Classes from what files and arrays hold: one per node, or several labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bvat.errors import GraphError, shown
from bvat.graph import UNKNOWN, targets_of
from bvat.graph.targets import ONE_CLASS, SEPARATOR, TARGETS, label_sets, refuse_one_hot

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Classes:
    """Class numbers and names; labels int64 (N), or (N, C) if nodes have several, -1 for unknown."""

    labels: IntArray
    names: tuple[str, ...]

    @classmethod
    def unknown(cls, nodes: int, like: Mapping[str, Any]) -> Classes:
        """Return the classes of nodes without labels, as a recipe has them."""
        targets, names = TARGETS[like.get("targets", ONE_CLASS.name)], tuple(like["classes"])
        return cls(targets.unknown(nodes, len(names)), names)

    @property
    def recipe(self) -> dict[str, str]:
        """What a recipe says of labels that are not one class per node."""
        targets = targets_of(self.labels)
        return {} if targets is ONE_CLASS else {"targets": targets.name}


def number_classes(labels: Sequence[str], names: Sequence[str] | None = None) -> Classes:
    """Number the classes in sorted order, integers by value; an empty name means an unknown label.

    KeyError of a class that is not among ``names``, where these are given.
    """
    names = _ordered({label for label in labels if label}) if names is None else names
    number = {name: k for k, name in enumerate(names)} | {"": UNKNOWN}
    return Classes(np.array([number[label] for label in labels], dtype=np.int64), tuple(names))


def _ordered(found: set[str]) -> list[str]:
    names = sorted(found)
    if all(name.isascii() and name.isdigit() and len(name) < 19 for name in names):
        names.sort(key=lambda name: (int(name), name))
    return names


def number_label_sets(cells: Sequence[str], names: Sequence[str] | None = None) -> Classes:
    """Number the labels in cells such as ``red|round``; an empty cell is unknown, ``|`` alone has no label.

    KeyError of a label that is not among ``names``, where these are given.
    """
    sets = list(map(split_labels, cells))
    names = _ordered({name for each in sets for name in each}) if names is None else names
    number = {name: k for k, name in enumerate(names)}
    labels: IntArray = np.zeros((len(cells), len(names)), dtype=np.int64)
    for row, each in zip(labels, sets, strict=True):
        row[[number[name] for name in each]] = 1
    labels[[not cell for cell in cells]] = UNKNOWN
    return Classes(labels, tuple(names))


def split_labels(cell: str) -> list[str]:
    return [name for part in cell.split(SEPARATOR) if (name := part.strip())]


def several_labels(given: NDArray[Any], names: Sequence[str] | None, where: str = "") -> Classes:
    """Return the classes of labels (N, C) of 0 and 1, -1 in a whole row; GraphError for anything else."""
    if names is not None and len(names) != given.shape[1]:
        raise GraphError(
            f"{where}labels have {given.shape[1]} columns, but there are {len(names)} class names: "
            "give one for each"
        )
    names = [str(k) for k in range(given.shape[1])] if names is None else names
    labels = label_sets(given, where)
    refuse_one_hot(labels, where)
    return Classes(labels, tuple(map(str, names)))


def array_classes(
    given: NDArray[Any],
    size: int,
    names: Sequence[str] | None = None,
    *,
    where: str = "",
    below: int = 2**31,
    compact: bool = False,
) -> Classes:
    """Return the classes of labels in an array: numbers or names (N), or 0 and 1 (N, C).

    Numbers stay as they are; with ``compact`` and without ``names`` those that do not occur are left out.
    """
    if given.ndim == 2 and given.shape[0] == size and given.shape[1] > 1:
        return several_labels(given, names, where)
    if given.shape != (size,):
        raise GraphError(
            f"{where}labels have shape {given.shape}, but there are {size} nodes: give one per node"
        )
    if given.dtype.kind in "UO":
        try:
            return number_classes([class_name(value) for value in given], names)
        except KeyError as unknown:
            raise GraphError(f"{where}label {unknown} is not one of class_names: add it there") from None
    if given.dtype.kind == "f" and ((np.abs(given) < np.float64(2**31)) & (given == np.trunc(given))).all():
        given = given.astype(np.int64)
    if given.dtype.kind not in "iu" or int(given.min()) < UNKNOWN or int(given.max()) >= below:
        raise GraphError(f"{where}labels must be whole numbers from 0 up, -1 for unknown: number the classes")
    numbers = given.astype(np.int64)
    if names is None and compact:
        return number_classes([class_name(number) for number in numbers])
    return Classes(numbers, tuple(map(str, names or range(int(numbers.max()) + 1))))


def class_name(value: Any) -> str:
    """Return the name of a class; None, NaN and -1 are unknown."""
    if value is None or value == UNKNOWN or (isinstance(value, float) and value != value):
        return ""
    return str(value).strip()


def require_classes(classes: Classes, where: str) -> None:
    if targets_of(classes.labels).independent:
        _require_label_sets(classes, where)
        return
    if not classes.names:
        raise GraphError(f"{where}: no node has a label: label a few nodes of each class")
    if len(classes.names) == 1:
        raise GraphError(
            f"{where}: all labels are {shown(classes.names[0])}, so there is nothing to learn: also label "
            "nodes of another class"
        )
    labelled = int((classes.labels != UNKNOWN).sum())
    if len(classes.names) > max(1000, labelled // 2):
        raise GraphError(
            f"{where}: {len(classes.names):,} classes for {labelled:,} labelled nodes, most of them with a "
            "single node: use labels that nodes share"
        )


def _require_label_sets(classes: Classes, where: str) -> None:
    known = classes.labels[targets_of(classes.labels).known(classes.labels)] if classes.names else None
    if known is None or not known.size:
        raise GraphError(f"{where}: no node has a label: label a few nodes")
    if known.all() or not known.any():
        what = "all labels" if known.all() else "no label"
        raise GraphError(f"{where}: every labelled node has {what}, so there is nothing to learn: check them")
