"""Random numbers behind one interface: those of a ``torch.Generator``, or counted per node.

Training over several ranks counts: every number is a function of the seed, the epoch, the number of the draw
within the epoch (which stands for purpose and pass: all ranks draw in the same order), the node and the
column. So a number does not depend on how nodes are spread over ranks, nothing has to be kept in a
checkpoint, and every rank draws the numbers of its own nodes only.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bvat.errors import SettingsError


def _dropout_level(rate: float, bits: int = 16) -> int:
    """Return the rate in units of 2^-bits; a rate just below 1 must not round up to it."""
    return min(round(rate * (1 << bits)), (1 << bits) - 1)


def dropout_factor(rate: float, bits: int = 16) -> float:
    """Return the factor of what dropout keeps, so that the expectation is exactly 1."""
    return (1 << bits) / ((1 << bits) - _dropout_level(rate, bits))


class Draws:
    """Random numbers for the rows of nodes, here those of a ``torch.Generator``.

    Masks have the factors 0 and 1 / (1 - rate).
    """

    def __init__(self, generator: torch.Generator) -> None:
        self.generator, self.device = generator, generator.device

    def dropout_mask(self, shape: tuple[int, ...], rate: float, like: Tensor) -> Tensor:
        """Draw a mask: (n, H), one row per node, or (D), the same for all nodes."""
        return self._mask(shape, rate, like, torch.int16)

    def coarse_mask(self, shape: tuple[int, ...], rate: float, like: Tensor) -> Tensor:
        """Draw a mask in half of the time; ``rate`` is rounded to a multiple of 2^-8."""
        return self._mask(shape, rate, like, torch.uint8)

    def _mask(self, shape: tuple[int, ...], rate: float, like: Tensor, dtype: torch.dtype) -> Tensor:
        """Draw a mask from as many random bits per entry as a type of whole numbers has.

        One 64-bit draw serves four or eight entries, and 0 and 1 are made by clamping whole numbers rather
        than by comparing: both are several times faster than a uniform number per entry and a comparison.
        ``rate`` is rounded to a multiple of 2^-bits and the factor made to fit, so the expectation is
        exactly 1.
        """
        size, each, bits = math.prod(shape), 8 // dtype.itemsize, 8 * dtype.itemsize
        words = torch.empty((size + each - 1) // each, dtype=torch.int64, device=like.device)
        drawn = words.random_(-(2**63), None, generator=self.generator).view(dtype)
        if drawn.numel() > size:
            drawn = drawn.narrow(0, 0, size)
        level = _dropout_level(rate, bits)
        if not level:
            return like.new_ones(shape)
        kept_from = level + torch.iinfo(dtype).min  # of the values of these bits, those from here on are kept
        drawn = drawn.clamp_(kept_from - 1, kept_from).sub_(kept_from - 1)
        return drawn.to(like.dtype).mul_(dropout_factor(rate, bits)).view(shape)

    def entry_mask(self, features: Any, rate: float) -> Tensor:
        """Draw one factor per stored entry of the features."""
        return self.dropout_mask(tuple(features.values.shape), rate, features.values)

    def edge_mask(self, matrix: Any, width: int, rate: float, like: Tensor) -> Tensor:
        """Draw ``width`` factors per entry of Â, in the form that ``matrix.masked`` takes."""
        return self.dropout_mask((matrix.nnz, width), rate, like)

    def normal(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Draw N(0, 1) numbers, one row per node."""
        return like.new_empty(shape).normal_(generator=self.generator)

    def entry_normal(self, pattern: Any) -> Tensor:
        """Draw N(0, 1) numbers, one per stored entry of a sparse matrix, (nnz)."""
        return torch.empty_like(pattern.values).normal_(generator=self.generator)

    def uniform(self, shape: tuple[int, ...], low: float, high: float, like: Tensor) -> Tensor:
        """Draw numbers from [low, high), one row per node."""
        return like.new_empty(shape).uniform_(low, high, generator=self.generator)

    def gamma(self, shape: float, like: Tensor) -> Tensor:
        """Draw a gamma-distributed number per node; like and result (n)."""
        return torch._standard_gamma(torch.full_like(like, shape), generator=self.generator)

    def seed(self) -> int:
        """Draw a seed for another generator, below 2^62."""
        return int(torch.randint(2**62, (), generator=self.generator, device=self.device))

    def integers(self, below: int, count: int) -> NDArray[np.int64]:
        """Draw whole numbers from 0 to ``below`` - 1, the same on every rank, (count)."""
        return torch.randint(below, (count,), generator=self.generator, device=self.device).cpu().numpy()

    def permutation(self, size: int) -> NDArray[np.int64]:
        """Draw an order of the numbers from 0 to ``size`` - 1, the same on every rank, (size)."""
        return torch.randperm(size, generator=self.generator, device=self.device).cpu().numpy()

    def begin_epoch(self, epoch: int) -> None:
        """Note that an epoch begins."""

    def get_state(self) -> Tensor:
        """Return what a checkpoint keeps, uint8."""
        return self.generator.get_state()

    def set_state(self, state: Tensor) -> None:
        self.generator.set_state(state)


Source = torch.Generator | Draws
"""What people pass as a generator."""


def as_draws(source: Source | None) -> Draws:
    """Return a generator as draws; SettingsError without one: nothing here draws from a global state."""
    if source is None:
        raise SettingsError(
            "random numbers are drawn here: pass generator=torch.Generator().manual_seed(0), "
            "or call model.eval() for a pass without dropout"
        )
    return Draws(source) if isinstance(source, torch.Generator) else source


EVERYWHERE = np.array([2**32 - 1], np.int64)
"""Stands for a node in draws that all nodes share."""


class RowDraws(Draws):
    """Numbers counted per node, by Philox (:mod:`bvat.engine.philox`).

    Args:
        seed: below 2^64.
        nodes: numbers in the whole graph of the own nodes, int64 (n).
    """

    def __init__(self, seed: int, nodes: Tensor) -> None:
        from bvat.engine import philox  # imports numba

        self.kernels = philox
        self.key = np.array([seed % 2**32, seed // 2**32 % 2**32], np.uint64)
        self.nodes = nodes.numpy()
        self.epoch, self.call = np.uint64(0), np.uint64(0)

    def begin_epoch(self, epoch: int) -> None:
        self.epoch, self.call = np.uint64(epoch), np.uint64(0)

    def get_state(self) -> Tensor:
        return torch.zeros(0, dtype=torch.uint8)

    def set_state(self, state: Tensor) -> None:
        pass

    def _counter(self) -> tuple[Any, Any, Any]:
        self.call += np.uint64(1)
        return self.key, self.epoch, self.call

    def _rows(self, shape: tuple[int, ...]) -> tuple[Any, Any]:
        """Return the nodes and row pointers of entries of a shape: rows of nodes, or one row for all."""
        if len(shape) == 1:
            return EVERYWHERE, np.array([0, shape[0]], np.int64)
        return self.nodes, np.arange(self.nodes.shape[0] + 1, dtype=np.int64) * shape[1]

    def dropout_mask(self, shape: tuple[int, ...], rate: float, like: Tensor) -> Tensor:
        return self._counted_mask(
            *self._rows(shape), _dropout_level(rate), dropout_factor(rate), like.new_empty(shape)
        )

    def coarse_mask(self, shape: tuple[int, ...], rate: float, like: Tensor) -> Tensor:
        level, factor = _dropout_level(rate, 8) << 8, dropout_factor(rate, 8)
        return self._counted_mask(*self._rows(shape), level, factor, like.new_empty(shape))

    def entry_mask(self, features: Any, rate: float) -> Tensor:
        values = features.values
        if values.dim() == 2:
            return self.dropout_mask(tuple(values.shape), rate, values)
        crow = features.crow.numpy()
        return self._counted_mask(
            self.nodes, crow, _dropout_level(rate), dropout_factor(rate), torch.empty_like(values)
        )

    def _counted_mask(self, nodes: Any, crow: Any, level: int, factor: float, out: Tensor) -> Tensor:
        flat = out.numpy().reshape(-1)
        self.kernels.masks(nodes, crow, level, flat.dtype.type(factor), self._counter(), flat)
        return out

    def edge_mask(self, matrix: Any, width: int, rate: float, like: Tensor) -> Tensor:
        """Draw a factor per entry of Â, and the one of the transposed entry; result (nnz, 2)."""
        rows, columns = (part.numpy() for part in matrix.global_entries)
        level, factor, counter = _dropout_level(rate), dropout_factor(rate), self._counter()
        both = []
        for first, second in ((rows, columns), (columns, rows)):
            out = torch.empty_like(matrix.values)
            numbers = out.numpy()
            self.kernels.pair_masks(first, second, level, numbers.dtype.type(factor), counter, numbers)
            both.append(out)
        return torch.stack(both, 1)

    def normal(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        out = like.new_empty(shape)
        self.kernels.normals(*self._rows(shape), self._counter(), out.numpy().reshape(-1))
        return out

    def entry_normal(self, pattern: Any) -> Tensor:
        out = torch.empty_like(pattern.values)
        self.kernels.normals(self.nodes, pattern.crow.numpy(), self._counter(), out.numpy())
        return out

    def uniform(self, shape: tuple[int, ...], low: float, high: float, like: Tensor) -> Tensor:
        out = like.new_empty(shape)
        self.kernels.uniforms(*self._rows(shape), self._counter(), out.numpy().reshape(-1))
        return out.mul_(high - low).add_(low)

    def gamma(self, shape: float, like: Tensor) -> Tensor:
        out = like.new_empty(self.nodes.shape[0])
        self.kernels.gammas(self.nodes, float(shape), self._counter(), out.numpy())
        return out

    def seed(self) -> int:
        high, low = self.words(2).tolist()
        return int((high << 30) + (low >> 2))

    def integers(self, below: int, count: int) -> NDArray[np.int64]:
        numbers: NDArray[np.int64] = (self.words(count) % np.uint64(below)).astype(np.int64)
        return numbers

    def permutation(self, size: int) -> NDArray[np.int64]:
        return np.argsort(self.words(size), kind="stable").astype(np.int64)

    def words(self, count: int) -> Any:
        """Return 32-bit numbers that are the same on every rank; uint64 (count)."""
        key, epoch, call = self._counter()
        blocks = np.arange((count + 3) // 4, dtype=np.uint64)
        counters = np.empty((blocks.size, 4), np.uint64)
        counters[:, 0], counters[:, 1], counters[:, 2], counters[:, 3] = EVERYWHERE[0], blocks, call, epoch
        out = np.empty_like(counters)
        self.kernels.words(counters, key, out)
        return out.reshape(-1)[:count]
