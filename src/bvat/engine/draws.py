"""Random numbers that do not depend on how nodes are spread over ranks.

Every number is a function of the seed, the epoch, the number of the draw within the epoch (which stands for
purpose and pass: all ranks draw in the same order), the node and the column. So nothing has to be kept in a
checkpoint, and every rank draws the numbers of its own nodes only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def _kernels() -> Any:
    """Return the compiled draws; numba is imported on first use."""
    from bvat.engine import philox

    return philox


EVERYWHERE = np.array([2**32 - 1], np.int64)
"""Stands for a node in draws that all nodes share."""


class RowDraws:
    """Draws for the nodes of a part; has the methods of ``torch.Generator`` that training needs.

    Args:
        seed: below 2^64.
        graph: the part: its nodes, features and matrix.
    """

    device = torch.device("cpu")

    def __init__(self, seed: int, graph: Any) -> None:
        self.key = np.array([seed % 2**32, seed // 2**32 % 2**32], np.uint64)
        self.nodes = graph.own_nodes.numpy()
        self.epoch, self.call = np.uint64(0), np.uint64(0)

    def begin_epoch(self, epoch: int) -> None:
        """Begin an epoch: its draws count from 0."""
        self.epoch, self.call = np.uint64(epoch), np.uint64(0)

    def get_state(self) -> Tensor:
        """Return what a checkpoint keeps: nothing."""
        return torch.zeros(0, dtype=torch.uint8)

    def set_state(self, state: Tensor) -> None:
        """Restore nothing."""

    def _counter(self) -> tuple[Any, Any, Any]:
        self.call += np.uint64(1)
        return self.key, self.epoch, self.call

    def _rows(self, shape: tuple[int, ...]) -> tuple[Any, Any]:
        """Return the nodes and row pointers of entries of a shape: rows of nodes, or one row for all."""
        if len(shape) == 1:
            return EVERYWHERE, np.array([0, shape[0]], np.int64)
        return self.nodes, np.arange(self.nodes.shape[0] + 1, dtype=np.int64) * shape[1]

    def dropout_mask(self, shape: tuple[int, ...], level: int, factor: float, like: Tensor) -> Tensor:
        """Draw 0 with probability level / 2^16, else factor: (n, H) for own nodes, (D) the same for all."""
        out = like.new_empty(shape)
        nodes, crow = self._rows(shape)
        self._mask(nodes, crow, level, factor, out)
        return out

    def entry_mask(self, crow: Tensor, level: int, factor: float, like: Tensor) -> Tensor:
        """Draw a factor per stored entry of the rows of own nodes; crow (n + 1), result (nnz)."""
        out = torch.empty_like(like)
        self._mask(self.nodes, crow.numpy(), level, factor, out)
        return out

    def _mask(self, nodes: Any, crow: Any, level: int, factor: float, out: Tensor) -> None:
        flat = out.numpy().reshape(-1)
        _kernels().masks(nodes, crow, level, flat.dtype.type(factor), *self._counter(), flat)

    def edge_mask(self, matrix: Any, level: int, factor: float) -> Tensor:
        """Draw a factor per entry of Â, and the one of the transposed entry; result (nnz, 2)."""
        rows, columns = matrix.global_entries
        counter = self._counter()
        both = []
        for first, second in ((rows, columns), (columns, rows)):
            out = torch.empty_like(matrix.values)
            arrays = first.numpy(), second.numpy()
            _kernels().pair_masks(*arrays, level, out.numpy().dtype.type(factor), *counter, out.numpy())
            both.append(out)
        return torch.stack(both, 1)

    def normal(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Draw N(0, 1) numbers for the rows of own nodes; shape (n, H)."""
        out = like.new_empty(shape)
        nodes, crow = self._rows(shape)
        _kernels().normals(nodes, crow, *self._counter(), out.numpy().reshape(-1))
        return out

    def entry_normal(self, crow: Tensor, like: Tensor) -> Tensor:
        """Draw N(0, 1) numbers, one per stored entry of the rows of own nodes; crow (n + 1), result (nnz)."""
        out = torch.empty_like(like)
        _kernels().normals(self.nodes, crow.numpy(), *self._counter(), out.numpy())
        return out

    def uniform(self, shape: tuple[int, ...], low: float, high: float, like: Tensor) -> Tensor:
        """Draw numbers from [low, high) for the rows of own nodes; shape (n, H)."""
        out = like.new_empty(shape)
        nodes, crow = self._rows(shape)
        _kernels().uniforms(nodes, crow, *self._counter(), out.numpy().reshape(-1))
        return out.mul_(high - low).add_(low)

    def gamma(self, shape: float, like: Tensor) -> Tensor:
        """Draw a gamma-distributed number per own node; result (n)."""
        out = like.new_empty(self.nodes.shape[0])
        _kernels().gammas(self.nodes, float(shape), *self._counter(), out.numpy())
        return out

    def words(self, count: int) -> Any:
        """Return 32-bit numbers that are the same on every rank; uint64 (count)."""
        key, epoch, call = self._counter()
        blocks = np.arange((count + 3) // 4, dtype=np.uint64)
        counters = np.empty((blocks.size, 4), np.uint64)
        counters[:, 0], counters[:, 1], counters[:, 2], counters[:, 3] = EVERYWHERE[0], blocks, call, epoch
        out = np.empty_like(counters)
        _kernels().words(counters, key, out)
        return out.reshape(-1)[:count]
