"""Options for reading a graph."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from bvat.errors import SettingsError

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

    def __post_init__(self) -> None:
        for name, low in (("train_per_class", 1), ("val", 0), ("test", 0), ("split_seed", 0)):
            _check_whole(name, getattr(self, name), low)
        if self.text is not None and not (isinstance(self.text, str) and self.text.strip()):
            raise SettingsError(f"text is {self.text!r}: give the name of a column of the nodes file")
        if self.split_seed and self.train_per_class is None and not self.val and not self.test:
            raise SettingsError(
                "split_seed has no effect where all labelled nodes are training nodes: use it with "
                "train_per_class, val or test, or leave it out"
            )

    def refuse(self, what: str) -> None:
        """Raise SettingsError if any option is set, for graphs that have their own split and features."""
        given = [f.name for f in fields(self) if getattr(self, f.name) != f.default]
        if given:
            raise SettingsError(f"{what} has its own split and features: remove {', '.join(given)}")

    @property
    def chooses_split(self) -> bool:
        """Whether any option about the split is set."""
        return self.split_seed != 0 or any(
            number is not None for number in (self.train_per_class, self.val, self.test)
        )


def _check_whole(name: str, value: Any, low: int) -> None:
    if value is None and name != "split_seed":
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise SettingsError(f"{name} is {value!r}: use a whole number from {low} up")
