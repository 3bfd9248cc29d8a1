"""Loops that numba compiles, for numpy arrays in single precision.

``loops`` (sparse products and the layers of a GCN) and ``searches`` (a step on receptive fields) import numba
and are imported only when needed; ``attention`` is a layer of a GAT. ``rowwise`` is arithmetic that does not
depend on how rows are spread over processes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bvat.engine.compile import has_numba


def usable(*tensors: Tensor) -> bool:
    """Return whether loops take these tensors: single precision, on a CPU, and numba installed."""
    return has_numba() and all(tensor.is_cpu and tensor.dtype == torch.float32 for tensor in tensors)


def arrays_of(*tensors: Tensor) -> list[Any]:
    """Return the tensors as numpy arrays whose rows lie one after the other."""
    return [(each.detach() if each.requires_grad else each).contiguous().numpy() for each in tensors]
