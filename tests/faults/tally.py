"""How often something was tried, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_counted = False


def remember(config: Any) -> None:
    """Remember whether the counts are written, which is when everything is tried in full."""
    global _counted
    _counted = bool(config.getoption("--tally", None))


def times(full: int, otherwise: int | None = None) -> int:
    """Return how often to try something: ``full`` times if the counts are written, else a tenth or so."""
    if _counted:
        return full
    return full // 10 if otherwise is None else otherwise


@dataclass
class Tally:
    """How often something was tried, and how it ended. ``survived`` is what the tests assert on."""

    group: str
    fault: str
    expected: str
    tried: int = 0
    survived: int = 0
    lost: int = 0
    tracebacks: int = 0
    code_run: int = 0

    def count(
        self, survived: bool, *, lost: bool = False, traceback: bool = False, code_run: bool = False
    ) -> None:
        """Count one attempt."""
        self.tried += 1
        self.survived += survived
        self.lost += lost
        self.tracebacks += traceback
        self.code_run += code_run

    def check(self) -> None:
        """Fail unless everything that was tried survived, and something was tried."""
        assert self.tried > 0, f"{self.fault}: nothing was tried"
        assert (self.survived, self.lost, self.tracebacks, self.code_run) == (self.tried, 0, 0, 0), self
