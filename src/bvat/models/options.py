"""Declaring the settings of a model, a method or the training: a default, a line of help and a range each.

Importing this module imports nothing heavy.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from bvat.errors import SettingsError

LARGEST_INT, LARGEST_FLOAT = 10**9, 3e38
"""Larger numbers are beyond float32."""
_BOUNDS: dict[str, Any] = {
    "at_least": operator.ge, "at_most": operator.le, "above": operator.gt, "below": operator.lt,
}  # fmt: skip


def option(default: Any, text: str, *, choices: tuple[str, ...] = (), **rest: Any) -> Any:
    """Declare a field of :class:`Options`.

    Args:
        default: it also says the type: bool, int, float or str.
        text: one line of help.
        choices: the values that a text may have.
        rest: ``at_least``, ``at_most``, ``above`` and ``below`` bound a number; ``only`` is a pair of another
            field and the value that it must have for this one to be read.
    """
    return field(default=default, metadata={"help": text, "choices": choices, **rest})


def like(base: type[Options], name: str, default: Any, **changes: Any) -> Any:
    """Declare a field as ``base`` has it, with another default and perhaps another range."""
    metadata = next(f.metadata for f in fields(base) if f.name == name)
    return field(default=default, metadata={**metadata, **changes})


@dataclass(frozen=True, kw_only=True)
class Options:
    """A part of the settings. Values are checked; numpy's numbers become Python's."""

    def __post_init__(self) -> None:
        for f in fields(self):
            value = _plain(getattr(self, f.name), type(f.default))
            object.__setattr__(self, f.name, value)
            _check(f.name, value, type(f.default), f.metadata)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def read(self) -> set[str]:
        """Return the names of the fields that have an effect with these values."""
        return {f.name for f in fields(self) if self._holds(f.metadata.get("only"))}

    def _holds(self, condition: tuple[str, Any] | None) -> bool:
        if condition is None:
            return True
        value, needed = getattr(self, condition[0]), condition[1]
        return bool(value >= needed if isinstance(needed, int) else value == needed)


def _plain(value: Any, kind: type) -> Any:
    """Return numpy's numbers as Python's, and whole numbers as floats where a float is expected."""
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    if kind is float and isinstance(value, numbers.Real):
        with suppress(OverflowError):  # a whole number with hundreds of digits
            return float(value)
    if kind is int and isinstance(value, numbers.Integral):
        return int(value)
    return value


def _check(name: str, value: Any, kind: type, limits: Mapping[str, Any]) -> None:
    """Raise SettingsError unless ``value`` has the type of the default and lies in its range."""
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise SettingsError(f"{name} must be of type {kind.__name__}, not {value!r}")
    if limits["choices"] and value not in limits["choices"]:
        raise SettingsError(f"{name} must be one of {', '.join(limits['choices'])}, not {value!r}")
    if kind in (int, float):
        _check_range(name, value, {"at_most": LARGEST_INT if kind is int else LARGEST_FLOAT, **limits})


def _check_range(name: str, value: Any, limits: Mapping[str, Any]) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise SettingsError(f"{name} must be a finite number, not {value}")
    for words, holds in _BOUNDS.items():
        if words in limits and not holds(value, limits[words]):
            raise SettingsError(f"{name} must be {words.replace('_', ' ')} {limits[words]}, not {value}")
