"""How much memory this process has used at most, with a mark from which on to count.

Where the system tells (Linux), its peak of this very program is read: the one that ``getrusage`` gives counts
the parent's memory too, because a child starts as a copy of it.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak() -> bool:
    """Let the peak start anew from what is in use now; False where the system cannot (only Linux can).

    Without it a peak while the graph was read would hide a lower one of the training that follows.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def peak_mb() -> float:
    """Return the peak since :func:`reset_peak`, or of the whole life of the process, in MiB."""
    found = _status("VmHWM:")
    return _peak_with_parent() if found is None else found


def current_mb() -> float:
    """Return what is in use now (the peak so far where the system does not tell), in MiB."""
    found = _status("VmRSS:")
    return _peak_with_parent() if found is None else found


def _status(name: str) -> float | None:
    try:
        lines = _STATUS.read_text("ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 2**10 for line in lines if line.startswith(name)), None)


def _peak_with_parent() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
