"""What a result depends on besides the code: versions and hardware, without names and paths."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any

import torch

from bvat._version import __version__

PACKAGES = ("torch", "numpy", "scipy", "numba", "torch_geometric", "matplotlib")


def versions() -> dict[str, str | None]:
    """Return the versions of bvat, Python and the packages; None where one is not installed."""
    found: dict[str, str | None] = {"bvat": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def machine() -> dict[str, Any]:
    """Return system, architecture, vector instructions, cores, threads and memory."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gb": _memory_gb(),
    }


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, ValueError, OSError):
        return None
