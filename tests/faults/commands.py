"""Commands that are watched and disturbed, and what their run folders hold in the end."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bvat.data.checksums import CHECKSUM

PATIENCE = 300
"""Seconds after which a test gives up waiting; what is waited for takes a few."""


def wait_until(condition: Callable[[], Any]) -> None:
    stop = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < stop, "waited in vain"
        time.sleep(0.01)


@dataclass
class Command:
    """A command that runs in a session of its own."""

    process: int
    folder: Path
    answers: Any
    code: int | None = None

    def wait(self) -> int:
        """Wait for the end of the command and of everything it has started; return its exit code."""
        if self.code is None:
            self.code = int(self.answers.readline())
        wait_until(lambda: not self.members())
        return self.code

    def members(self) -> list[int]:
        """Return the processes of the session, without the dead ones that have not been waited for."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, _, _, session = path.read_text().rsplit(")", 1)[1].split()[:4]
                if int(session) == self.process and state not in "ZX":
                    found.append(int(path.parent.name))
        return found

    def workers(self) -> list[int]:
        """Return the worker processes."""
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{self.process}/task/{self.process}/children").read_text().split()
            return [int(each) for each in children if _is_worker(each)]
        return []

    def ended(self) -> bool:
        """Whether the leader of the session has ended."""
        return not Path(f"/proc/{self.process}").exists()  # it is waited for all the time

    def send(self, number: int, target: str) -> None:
        """Send a signal to the ``parent``, a ``worker`` (the parent if there is none) or the ``group``."""
        with contextlib.suppress(ProcessLookupError):
            if target == "group":
                os.killpg(self.process, number)
            else:
                os.kill([self.process, *self.workers()][-1 if target == "worker" else 0], number)

    @property
    def error(self) -> str:
        """What the command wrote to standard error."""
        path = self.folder / "stderr"
        return path.read_text() if path.exists() else ""


def _is_worker(process: str) -> bool:
    with contextlib.suppress(OSError):
        return b"spawn_main" in Path(f"/proc/{process}/cmdline").read_bytes()
    return False


class Forker:
    """The parent of the commands."""

    def __init__(self) -> None:
        here = Path(__file__).with_name("forker.py")
        self._process = subprocess.Popen(
            [sys.executable, str(here)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(
        self,
        arguments: list[str],
        folder: Path,
        *,
        limit: int | None = None,
        stdout: Path | None = None,
        stderr: Path | None = None,
        **environment: str,
    ) -> Command:
        """Start a command in a folder, with a limit on the size of its files."""
        about = {
            "arguments": arguments,
            "folder": str(folder),
            "stdout": str(stdout or folder / "stdout"),
            "stderr": str(stderr or folder / "stderr"),
            "limit": limit,
            "environment": environment,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(about) + "\n")
        self._process.stdin.flush()
        return Command(int(self._process.stdout.readline()), folder, self._process.stdout)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


@contextlib.contextmanager
def forker() -> Iterator[Forker]:
    """Give a forker, and end it."""
    made = Forker()
    try:
        yield made
    finally:
        made.close()


def is_sentence(error: str) -> bool:
    """Return whether this is one line of the command line and no traceback."""
    lines = [line for line in error.splitlines() if line.strip()]
    return len(lines) == 1 and lines[0].startswith("bvat: ") and "Traceback" not in error


TIMES = ("ms", "epoch_ms", "seconds", "peak_rss_mb", "files", CHECKSUM)
"""Measured times, and the checksums of what holds them."""


def without_times(content: Any) -> Any:
    """Return plain values without those that differ from run to run."""
    if isinstance(content, dict):
        return {key: without_times(value) for key, value in content.items() if key not in TIMES}
    return [without_times(value) for value in content] if isinstance(content, list) else content


def content_of(folder: Path) -> dict[str, Any]:
    """Return everything a run folder holds, bit for bit, except measured times."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir() or path.name == "report.html":
            continue
        name = str(path.relative_to(folder))
        if path.name == "metrics.csv":
            with path.open(newline="") as file:
                found[name] = without_times(list(csv.DictReader(file)))
        elif path.suffix == ".json":
            found[name] = without_times(json.loads(path.read_text()))
        elif path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                found[name] = {key: arrays[key].tobytes() for key in arrays.files}
        else:
            found[name] = path.read_bytes()
    return found


SIGNALS = {name: int(getattr(signal, name)) for name in ("SIGTERM", "SIGINT", "SIGHUP")}
