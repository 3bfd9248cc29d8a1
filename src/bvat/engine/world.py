"""The world: what has to be done with the other processes, of which there are none by default.

Losses, metrics and gradients are sums over the nodes. They go through the current world: alone, that is the
plain operation on tensors; over several ranks, the sum over the nodes of all ranks, the same bits for any
number of them (see :mod:`bvat.engine.ranks`). Every rank calls the same methods in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from bvat.engine.compiled import rowwise

T = TypeVar("T")


class World:
    """One process alone: every method is the plain operation on tensors."""

    leads = True
    """Whether this process prints and writes files."""
    rowwise = False
    """Whether results must not depend on how nodes are spread over ranks (``rowwise``)."""

    def total(self, number: int) -> int:
        """Return the sum of a number over the ranks."""
        return number

    def any(self, flag: bool) -> bool:
        """Return whether a flag is set on any rank."""
        return flag

    def counts(self, counts: Tensor) -> Tensor:
        """Return the sum of whole numbers over the ranks; any shape."""
        return counts

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean of the values of all nodes; values (n)."""
        return values.mean()

    def largest(self, values: Tensor) -> Tensor:
        """Return the largest of the values of all nodes; any shape."""
        return values.amax()

    def group_sums(self, values: Tensor, group: Tensor, groups: int) -> Tensor:
        """Return the sum of the values of each group of nodes; values and group (n), result (groups)."""
        return values.new_zeros(groups).index_add_(0, group, values)

    def node_product(self, a: Tensor, b: Tensor) -> Tensor:
        """Return ``sum_v a_v b_vᵀ`` over all nodes; a (n, K), b (n, M), result (K, M)."""
        return a.t() @ b

    def column_sums(self, a: Tensor) -> Tensor:
        """Return ``sum_v a_v`` over all nodes; a (n, K), result (K)."""
        return a.sum(0)

    def times(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Return ``rows @ weight``, differentiable; rows (n, K), weight (K, M)."""
        return rows @ weight

    def plus(self, rows: Tensor, bias: Tensor) -> Tensor:
        """Return ``rows + bias``, differentiable; rows (n, K), bias (K)."""
        return rows + bias

    def generator(self, graph: Any, seed: int) -> Any:
        """Return the source of random numbers for training on a graph."""
        return torch.Generator(graph.device).manual_seed(seed)

    def begin_epoch(self, generator: Any, epoch: int) -> None:
        """Tell the source of random numbers that an epoch begins."""

    def own_file(self, path: Path, epoch: int) -> Path | None:
        """Return the file for what only this rank has of a checkpoint; None alone."""
        return None

    def agree(self, make: Callable[[], T]) -> T:
        """Return what ``make`` returns on the leading rank."""
        return make()

    def barrier(self) -> None:
        """Wait until all ranks are here."""


_current: World = World()


def current() -> World:
    """Return the world of this process."""
    return _current


def enter(world: World) -> None:
    """Make a world the current one for the rest of this process."""
    global _current
    _current = world
    rowwise.switch_on()


@contextmanager
def within(world: World) -> Iterator[None]:
    """Make a world the current one inside the block."""
    global _current
    before, _current = _current, world
    try:
        with rowwise.use(world.rowwise):
            yield
    finally:
        _current = before
