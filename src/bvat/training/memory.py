"""The peak memory of this process, and a baseline to measure from.

Linux reports the peak of the program itself. The one of ``getrusage`` includes the memory of the parent,
because a child starts as a copy of it.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak() -> bool:
    """Reset the peak to the current memory; return False if the system cannot (only Linux can).

    Otherwise a peak from reading the graph would hide a lower one from training.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def keep_freed_arrays() -> None:
    """Let the C library keep the arrays of an epoch for the next one instead of giving them back.

    glibc gives back what is larger than the largest array freed so far, up to 32 MB, and every page that is
    asked for again costs a microsecond. The array here is never written to, so that it takes no memory.
    """
    torch.empty(31 << 20, dtype=torch.uint8)


def peak_mb() -> float:
    """Return the peak since :func:`reset_peak`, or since the process started, in MiB."""
    return _status("VmHWM:")


def current_mb() -> float:
    """Return the memory in use (the peak so far where the system does not report it), in MiB."""
    return _status("VmRSS:")


def _status(name: str) -> float:
    try:
        lines = _STATUS.read_text("ascii", errors="replace").splitlines()
        return next(int(line.split()[1]) / 2**10 for line in lines if line.startswith(name))
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
