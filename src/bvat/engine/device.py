"""On which device to compute: one rule for commands, runs and estimators."""

from __future__ import annotations

import torch

from bvat.errors import SettingsError


def choose_device(name: str | None = None) -> str:
    """Return "cpu" or "cuda"; None and "auto" stand for a GPU if torch finds one, else the CPU."""
    if name not in (None, "auto", "cpu", "cuda"):
        raise SettingsError(f"device must be auto, cpu or cuda, not {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingsError("there is no CUDA device: install a CUDA build of torch, or use --device cpu")
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"
