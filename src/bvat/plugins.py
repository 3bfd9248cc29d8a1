"""Tables that other packages and scripts can add rows to: methods, models, baselines and data sets.

A package names a row in an entry point of the group ``bvat.methods``, ``bvat.models``, ``bvat.baselines`` or
``bvat.datasets``; a script calls :func:`bvat.register`. Importing this module imports nothing heavy.
"""

from __future__ import annotations

import inspect
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from bvat.errors import BvatError, SettingsError, shown

Row = TypeVar("Row")
Home = str | Callable[..., Any]
"""``module:name``, which is imported on first use, or the thing itself."""


class PluginWarning(UserWarning):
    """A plug-in does not work and is left out."""


class Table(Mapping[str, Row]):
    """Rows by name: bvat's own, then those of installed packages, then those of the running script.

    Entry points are read when a name is not among bvat's own, or all rows are asked for.

    Args:
        group: of the entry points; each names an object of ``kind``.
        kind: the class of a row, which has a ``name``.
        rows: bvat's own.
        beside: tables whose names must not be used again.
    """

    def __init__(self, group: str, kind: type[Row], rows: Iterable[Row], *beside: Table[Any]) -> None:
        self.group, self.kind, self.beside = group, kind, beside
        self.own: dict[str, Row] = {getattr(row, "name"): row for row in rows}  # noqa: B009

    @cached_property
    def added(self) -> dict[str, Row]:
        from importlib.metadata import entry_points

        self.__dict__["added"] = {}  # a plug-in may read the table while it is imported
        for point in entry_points(group=self.group):
            try:
                self.register(point.load())
            except (Exception, SystemExit) as error:
                package = point.dist.name if point.dist is not None else point.value
                why = str(error) if isinstance(error, BvatError) else f"{type(error).__name__}: {error}"
                text = f"the plug-in {package} is left out: its {point.name} in {self.group} cannot be used"
                warnings.warn(f"{text} ({why})", PluginWarning, stacklevel=2)
        found: dict[str, Row] = self.__dict__["added"]
        return found

    def register(self, row: Row) -> None:
        """Add a row; SettingsError if it is none, or its name is taken."""
        if not isinstance(row, self.kind):
            raise SettingsError(f"{shown(row)} is not a {self.kind.__name__}")
        name: str = getattr(row, "name")  # noqa: B009
        if any(name in table for table in (self, *self.beside)):
            raise SettingsError(f"the name {name!r} is taken: choose another one")
        self.added[name] = row

    def __getitem__(self, name: str) -> Row:
        return self.own[name] if name in self.own else self.added[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self.own, *self.added))

    def __len__(self) -> int:
        return len(self.own) + len(self.added)


def is_path(name: object) -> bool:
    """Return whether a name is ``module:name``, something to import, and not that of a row."""
    module, _, thing = str(name).partition(":")
    return all(part.isidentifier() for part in (*module.split("."), *thing.split(".")))


def path_of(thing: Any) -> str:
    """Return where something, or the class of an object or of what it wraps, could be imported from."""
    if not hasattr(thing, "__qualname__"):
        thing = type(getattr(thing, "__dict__", {}).get("module", thing))
    return f"{thing.__module__}:{thing.__qualname__}"


def imported(home: Home, *, here: bool = False) -> Any:
    """Return what a home names.

    Args:
        home: where it is, or itself.
        here: whether it may be in the current folder, if no other module has its name.

    Raises:
        SettingsError: it cannot be imported.
    """
    if not isinstance(home, str):
        return home
    module, _, name = home.partition(":")
    if module.startswith("bvat."):
        return getattr(import_module(module), name)
    if here and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        return attrgetter(name)(import_module(module))
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        known = isinstance(error, ImportError | AttributeError)
        where = "" if known else f" in {last.filename}, line {last.lineno}"
        raise SettingsError(
            f"{home} cannot be imported ({type(error).__name__}{where}: {error}): check the name, and "
            "install its package or run this in its folder"
        ) from error


def source_of(home: Home) -> str | None:
    """Return the text of the file that defines something of other packages, without importing it again.

    None for what is bvat's own, or has no file: results then depend on the version of bvat alone.
    """
    if isinstance(home, str) and home.startswith("bvat."):
        return None
    found = imported(home)
    found = found if hasattr(found, "__qualname__") else type(found)
    try:
        return Path(inspect.getsourcefile(found) or "").read_text("utf-8")
    except (OSError, TypeError, ValueError):
        return None
