"""The progress display of the command line, on standard error or nowhere."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from types import TracebackType
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class ProgressDisplay(Generic[Key]):
    """One bar for all tasks together with the time left and, if asked for, one per running task.

    Args:
        title: text before the bar.
        sizes: the size of each task, in any unit.
        console: a rich console; None shows nothing.
        labels: text before the bar of each task; None for no such bars.
        unit: name of the unit, which is then counted; otherwise percent are shown.
    """

    def __init__(
        self,
        title: str,
        sizes: Mapping[Key, float],
        console: Any = None,
        *,
        labels: Mapping[Key, str] | None = None,
        unit: str = "",
    ) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        amount = [MofNCompleteColumn(), TextColumn(unit)] if unit else [TaskProgressColumn()]
        self._rich = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            *amount,
            TimeRemainingColumn(),
            console=console or Console(quiet=True),
            transient=True,
            speed_estimate_period=600,  # tasks differ in speed: look far back
        )
        self._sizes = dict(sizes)
        self._done = dict.fromkeys(self._sizes, 0.0)
        self._bars = {
            key: self._rich.add_task(label, total=self._sizes[key], visible=False)
            for key, label in (labels or {}).items()
        }
        self._whole = self._rich.add_task(title, total=sum(self._sizes.values()) or 1)

    def __enter__(self) -> ProgressDisplay[Key]:
        self._rich.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rich.stop()

    @property
    def finished(self) -> int:
        """The number of tasks that are done."""
        return sum(self._done[key] >= size for key, size in self._sizes.items())

    def update(self, key: Key, done: float) -> None:
        """Note how much of a task is done."""
        size = self._sizes[key]
        self._done[key] = min(done, size)
        if key in self._bars:
            self._rich.update(self._bars[key], completed=done, visible=0 < done < size)
        self._rich.update(self._whole, completed=sum(self._done.values()))

    def set_title(self, title: str) -> None:
        """Change the text before the bar."""
        self._rich.update(self._whole, description=title)
