"""The mathematics of bvat on tensors: every operation that has a faster form, or one over several ranks.

A matrix and a graph carry their engine; models, searches and losses ask it and nothing else.
:class:`bvat.engine.cpu.CompiledEngine` overrides what compiled loops do faster, and
:class:`bvat.engine.ranks.RankEngine` sums, products and draws over several processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from bvat.engine.attention import AttentionMath
from bvat.engine.draws import Draws
from bvat.engine.fields import grown_fields
from bvat.engine.matrix import Matrix
from bvat.engine.rows import RowMath

T = TypeVar("T")


class AdamRates(NamedTuple):
    """Settings of Adam; ``weight_decay`` w adds the gradient of ``w/2 |values|²`` to what is minimised."""

    lr: float
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8


def adam_step_(
    values: Sequence[Tensor],
    gradients: Sequence[Tensor],
    moments: Mapping[str, Sequence[Tensor]],
    rates: AdamRates,
    *,
    maximize: bool = False,
) -> None:
    """Make one step of Adam in place, in one pass over memory: values, moments and counts of steps change.

    torch.optim.Adam takes a second to import what it needs to be compiled, and a tenth of a millisecond to go
    through its options in each step, which on a small graph is a tenth of an epoch. This is the same update.
    ``maximize`` turns the gradients around, but not that of the weight decay.

    Shapes: values, gradients, moments "first" and "second" alike; "count" scalars of the values' precision.
    """
    first, second, counts = (list(moments[name]) for name in ("first", "second", "count"))
    torch._foreach_add_(counts, 1)
    torch._fused_adam_(
        list(values),
        # it reads memory in order: a gradient that lies by columns would reach other entries of the values
        [
            g if g.stride() == v.stride() else torch.empty_like(v).copy_(g)
            for v, g in zip(values, gradients, strict=True)
        ],
        first,
        second,
        [],
        counts,
        lr=rates.lr,
        beta1=rates.betas[0],
        beta2=rates.betas[1],
        weight_decay=rates.weight_decay,
        eps=rates.epsilon,
        amsgrad=False,
        maximize=maximize,
    )


class TensorEngine(RowMath, AttentionMath):
    """One process: every operation is the plain one on tensors."""

    leads = True
    """Whether this process prints and writes files."""
    processes: int | None = None
    """How many processes already share the work; None for one that may start others."""

    # searches

    def adam_step(self, r: Tensor, gradient: Tensor, moments: dict[str, Tensor], rates: AdamRates) -> None:
        """Make one step of Adam up the gradient; r and the moments change in place."""
        adam_step_([r], [gradient], {name: [each] for name, each in moments.items()}, rates, maximize=True)

    def disjoint_fields(
        self, matrix: Matrix, depth: int, count: int, draws: Draws, among: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Choose at most ``count`` nodes whose K-hop balls do not meet, at random, one after another.

        Returns the chosen nodes int64 (b), for each node the number of the chosen node in whose ball it lies,
        int64 (n), -1 for none, and the numbers of the chosen nodes among those of all ranks.
        """
        return *grown_fields(matrix, depth, count, draws, among), None

    # what a run needs

    def draws(self, seed: int, graph: Any) -> Draws:
        """Return the source of random numbers for training on a graph."""
        return Draws(torch.Generator(graph.device).manual_seed(seed))

    def own_file(self, path: Path, epoch: int) -> Path | None:
        """Return the file for what only this rank has of a checkpoint; None alone."""
        return None

    def agree(self, make: Callable[[], T]) -> T:
        """Return what ``make`` returns on the leading rank."""
        return make()

    def barrier(self) -> None:
        """Wait until all ranks are here."""
