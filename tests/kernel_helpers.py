"""Matrices for the tests of compiled loops, and a way to do without them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse as sp
import torch
import torch.multiprocessing  # its import teaches ForkingPickler to share tensors
from torch import Tensor

from bvat.engine import attention
from bvat.engine.sparse import SparseMatrix
from core_helpers import seeded

DTYPES = [torch.float32, torch.float64]
WIDTHS = [8, 16, 24, 32, 56, 64]


@contextmanager
def without_numba() -> Iterator[None]:
    """Within the block nothing runs compiled that has a form in tensor operations."""
    with mock.patch.object(attention, "has_numba", return_value=False):
        yield


def assert_same(found: Tensor, expected: Tensor) -> None:
    """Equal but for the order of sums."""
    assert found.shape == expected.shape
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    assert scale > 0 or not expected.any()
    atol = 100 * torch.finfo(expected.dtype).eps * scale
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)


def sparse(
    rows: int, columns: int, dtype: torch.dtype, kind: type[SparseMatrix] = SparseMatrix, entries: int = 6
) -> Any:
    """A matrix that is not symmetric; its first, third and last rows and its second column are empty."""
    rng = np.random.default_rng(rows)
    row, column = rng.integers(0, rows, entries * rows), rng.integers(0, columns, entries * rows)
    keep = ~np.isin(row, (0, 2, rows - 1)) & (column != 1)
    parts = rng.standard_normal(keep.sum()), (row[keep], column[keep])
    made = SparseMatrix.from_scipy(sp.coo_array(parts, shape=(rows, columns)), dtype)
    return kind(made.crow, made.col, made.values, made.shape)


def random(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=seeded(seed)).to(dtype)


def times(matrix: Any, dense: Tensor) -> Tensor:
    """The product by scipy."""
    return torch.from_numpy(matrix @ dense.numpy())
