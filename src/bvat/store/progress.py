"""The progress display of the command line."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from contextlib import ExitStack
from typing import Any, Generic, TypeVar

from bvat.engine.compile import when_compiling
from bvat.errors import printable

Key = TypeVar("Key", bound=Hashable)


class ProgressDisplay(Generic[Key]):
    """One bar for all tasks together with the time left and, if asked for, one per running task.

    While a loop is compiled in this process, in the first run on a machine, the text before the bar says so.

    Args:
        title: text before the bar.
        sizes: the size of each task, in any unit.
        console: a rich console; None shows nothing.
        labels: text before the bar of each task; None for no such bars.
        unit: name of the unit, which is then counted; otherwise the display shows percent.
        line_every: seconds after which a file, which no bar can be drawn in, gets a line; None for no lines.
    """

    def __init__(
        self,
        title: str,
        sizes: Mapping[Key, float],
        console: Any = None,
        *,
        labels: Mapping[Key, str] | None = None,
        unit: str = "",
        line_every: float | None = None,
    ) -> None:
        from rich import progress
        from rich.console import Console

        amount = [progress.MofNCompleteColumn(), progress.TextColumn(unit)]
        self._rich = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            *(amount if unit else [progress.TaskProgressColumn()]),
            progress.TimeRemainingColumn(),
            console=console or Console(quiet=True),
            transient=True,
            speed_estimate_period=600,  # tasks differ in speed: average over a long time
        )
        title = printable(title)
        self._line_every = None if self._rich.console.is_terminal else line_every
        self._said = time.monotonic()
        self._sizes, self._done = dict(sizes), dict.fromkeys(sizes, 0.0)
        self._bars = {
            key: self._rich.add_task(label, total=sizes[key], visible=False)
            for key, label in (labels or {}).items()
        }
        self._whole = self._rich.add_task(title, total=sum(sizes.values()) or 1)
        self._title, self._open, self._unit = title, ExitStack(), unit

    def __enter__(self) -> ProgressDisplay[Key]:
        self._open.enter_context(when_compiling(self._note_compiling))
        self._rich.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._rich.stop()
        self._open.close()

    @property
    def finished(self) -> int:
        return sum(self._done[key] >= size for key, size in self._sizes.items())

    def update(self, key: Key, done: float) -> None:
        self._done[key] = min(done, self._sizes[key])
        if key in self._bars:
            self._rich.update(self._bars[key], completed=done, visible=0 < done < self._sizes[key])
        self._rich.update(self._whole, completed=sum(self._done.values()))
        if self._line_every is not None and time.monotonic() - self._said >= self._line_every:
            self._said = time.monotonic()
            all_done, size = sum(self._done.values()), sum(self._sizes.values())
            share = f"{all_done:,.0f} of {size:,.0f} {self._unit}" if self._unit else f"{all_done / size:.0%}"
            self._rich.console.print(f"{self._title}: {share}", markup=False, highlight=False, soft_wrap=True)

    def set_title(self, title: str) -> None:
        self._title = printable(title)
        self._rich.update(self._whole, description=self._title)

    def _note_compiling(self, name: str) -> None:
        """Say that a function is compiled now; "" ends that."""
        text = f"compiling for the first run: {name}" if name else self._title
        self._rich.update(self._whole, description=text)
