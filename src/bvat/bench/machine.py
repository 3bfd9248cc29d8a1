"""What a result depends on besides the code: versions and hardware, without names and paths."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch

PACKAGES = ("torch", "numpy", "scipy", "numba", "torch_geometric")


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
