"""Options for reading a graph."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from bvat.errors import SettingsError

TRAIN_PER_CLASS = 20
"""Training nodes per class if the files contain no split."""
VAL = 500
"""Validation nodes if the files contain no split."""


@dataclass(frozen=True)
class ReadOptions:
    """How to read a graph. None means the default, which is reduced if labels are scarce."""

    text: str | None = None
    """A text column of the nodes file to turn into TF-IDF features."""
    train_per_class: int | None = None
    """Training nodes per class."""
    val: int | None = None
    """Validation nodes; the other labelled nodes are for testing."""
    split_seed: int = 0
    """Same seed, same split."""

    def __post_init__(self) -> None:
        for name, low in (("train_per_class", 1), ("val", 0), ("split_seed", 0)):
            _check_whole(name, getattr(self, name), low)
        if self.text is not None and not (isinstance(self.text, str) and self.text.strip()):
            raise SettingsError(f"text is {self.text!r}: give the name of a column of the nodes file")

    def refuse(self, what: str) -> None:
        """Raise SettingsError if any option is set, for graphs that have their own split and features."""
        given = [f.name for f in fields(self) if getattr(self, f.name) != f.default]
        if given:
            raise SettingsError(f"{what} has its own split and features: remove {', '.join(given)}")

    @property
    def chooses_split(self) -> bool:
        """Whether any option about the split is set."""
        return self.train_per_class is not None or self.val is not None or self.split_seed != 0


def _check_whole(name: str, value: Any, low: int) -> None:
    if value is None and name != "split_seed":
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise SettingsError(f"{name} is {value!r}: use a whole number from {low} up")
