"""The memory of this process."""

from __future__ import annotations

import ctypes
import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch


def keep_freed_arrays() -> None:
    """Let the C library keep the arrays of an epoch for the next one instead of giving them back.

    glibc gives back what is larger than the largest array freed so far, up to 32 MB, and every page that is
    asked for again costs a microsecond. The array here is never written to, so that it takes no memory.
    """
    torch.empty(31 << 20, dtype=torch.uint8)


def give_back() -> None:
    """Return freed memory to the system, where the C library can (glibc): between arrays in use it stays."""
    with suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def reset_peak() -> None:
    """Reset the peak to the current memory, where the system can (Linux).

    Otherwise a peak from reading the graph would hide a lower one from training.
    """
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def current_mb() -> float:
    """Return the memory in use (the peak so far where the system does not report it), in MiB."""
    return peak_mb("VmRSS:")


def peak_mb(name: str = "VmHWM:") -> float:
    """Return the peak since :func:`reset_peak` or the start, in MiB, or another line of Linux's status.

    The peak of ``getrusage`` includes the memory of the parent, because a child starts as a copy of it.
    """
    try:
        lines = Path("/proc/self/status").read_text("ascii", errors="replace").splitlines()
        return next(int(line.split()[1]) / 2**10 for line in lines if line.startswith(name))
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
