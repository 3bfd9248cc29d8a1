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
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from bvat.engine.attention import SLOPE, Attend, edge_softmax
from bvat.engine.draws import Draws
from bvat.engine.fields import grown_fields
from bvat.engine.matrix import Matrix

T = TypeVar("T")


CLASS_MAJOR_UP_TO = 32
"""Number of classes up to which class-major is faster; beyond, the transposition costs more than it saves."""


BLOCKWISE_FROM = 60 * 60
"""Entries from which on torch transposes a matrix by blocks, which takes two to five times as long for a few
columns as an ordinary copy."""


BY_COLUMNS_UP_TO = 2**18
"""Entries of a dense matrix up to which it may lie by columns: a larger one does not stay in the cache, and a
product would fetch a line of memory for every column of a neighbour instead of one for all."""


class _KnownGradients(torch.autograd.Function):
    """A scalar whose gradients with respect to some tensors have been worked out beside it."""

    @staticmethod
    def forward(
        ctx: Any, value: Tensor, gradients: Sequence[Tensor], scale: float, *tensors: Tensor
    ) -> Tensor:
        ctx.gradients, ctx.scale = gradients, scale
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        factor = grads[0] * ctx.scale
        return None, None, None, *(gradient * factor for gradient in ctx.gradients)


def with_gradient(logits: Tensor, value: Tensor, gradient: Tensor, scale: float = 1.0) -> Tensor:
    """Return ``value`` as a function of ``logits`` (n, C) with the gradient ``scale * gradient`` (n, C)."""
    return with_gradients([logits], value, [gradient], scale)


def with_gradients(
    tensors: Sequence[Tensor], value: Tensor, gradients: Sequence[Tensor], scale: float = 1.0
) -> Tensor:
    """Return ``value`` as a function of several tensors, whose gradients are known up to a factor."""
    attached: Tensor = _KnownGradients.apply(value, gradients, scale, *tensors)  # type: ignore[no-untyped-call]
    return attached


def class_major(logits: Tensor) -> tuple[Tensor, int]:
    """Return the logits (n, C) in the faster layout, (C, n) or (n, C), and the dimension of the classes.

    A softmax over a few classes vectorises over the nodes when the classes are the outer dimension in memory:
    on (C, n) it is twenty times faster than over the rows of (n, C).
    """
    logits = logits.detach()
    if logits.shape[1] > CLASS_MAJOR_UP_TO:
        return logits, 1
    turned = logits.t()
    if turned.is_contiguous() or turned.numel() < BLOCKWISE_FROM:
        return turned.contiguous(), 0
    values = torch.empty_like(turned, memory_format=torch.contiguous_format)
    values.t().copy_(logits)
    return values, 0


def by_nodes(values: Tensor, classes: int) -> Tensor:
    """Return (n, C) as a view of what :func:`class_major` returned."""
    return values if classes == 1 else values.t()


class _Times(torch.autograd.Function):
    """``rows @ weight``, each product in its fast order; the gradient of weight is a sum over the nodes."""

    @staticmethod
    def forward(ctx: Any, engine: TensorEngine, rows: Tensor, weight: Tensor) -> Tensor:
        ctx.engine = engine
        ctx.save_for_backward(rows, weight)
        narrow = weight.shape[1] < weight.shape[0]
        return engine.narrow_times(rows, weight) if narrow else engine.plain_times(rows, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        (rows, weight), (_, for_rows, for_weight) = ctx.saved_tensors, ctx.needs_input_grad
        return (
            None,
            ctx.engine.plain_times(grads[0], weight.t()) if for_rows else None,
            ctx.engine.node_product(rows, grads[0]) if for_weight else None,
        )


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


class TensorEngine:
    """One process: every operation is the plain one on tensors."""

    leads = True
    """Whether this process prints and writes files."""
    processes: int | None = None
    """How many processes already share the work; None for one that may start others."""

    # sums over the nodes

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
        """Return the largest of the values of all nodes, which are not negative; any shape."""
        return values.amax()

    def group_sums(self, values: Tensor, group: Tensor, groups: int) -> Tensor:
        """Return the sum of the values of each group of nodes; values and group (n), result (groups)."""
        return values.new_zeros(groups).index_add_(0, group, values)

    def node_product(self, a: Tensor, b: Tensor) -> Tensor:
        """Return ``aᵀ b = sum_v a_v b_vᵀ`` over all nodes; a (n, K), b (n, M), result (K, M).

        The narrower factor stands first: the other order takes up to twenty times as long for a few columns.
        """
        return a.t() @ b if a.shape[1] <= b.shape[1] else (b.t() @ a).t()

    def column_sums(self, a: Tensor) -> Tensor:
        """Return ``sum_v a_v`` over all nodes; a (n, K), result (K)."""
        return a.sum(0)

    # rows of nodes

    def times(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Return ``rows @ weight``, differentiable; rows (n, K), weight (K, M)."""
        if not torch.is_grad_enabled():
            return self.plain_times(rows, weight)
        product: Tensor = _Times.apply(self, rows, weight)  # type: ignore[no-untyped-call]
        return product

    def plain_times(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Return ``rows @ weight`` without gradient."""
        return rows @ weight

    def plus(self, rows: Tensor, bias: Tensor) -> Tensor:
        """Return ``rows + bias``, differentiable; rows (n, K), bias (K)."""
        return rows + bias

    def plus_times(self, base: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
        """Return ``base + rows @ weight`` without gradient; base (n, M)."""
        return torch.addmm(base, rows, weight)

    def narrow_times(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Return ``rows @ weight`` without gradient, stored by columns: several times faster for a few.

        Two transposed factors are a slow case of some linear algebra libraries, hence the copy.
        """
        return (weight.t().contiguous() @ rows.t()).t()

    def row_dots(self, a: Tensor, b: Tensor) -> Tensor:
        """Return ``sum_j a_vj b_vj`` of every row v, without gradient; a, b (n, H), result (n)."""
        dots: Tensor = torch.linalg.vecdot(a, b)
        return dots

    def row_sums(self, a: Tensor) -> Tensor:
        """Return the sum of every row, without gradient; a (n, H), result (n)."""
        return a.sum(1)

    def log(self, values: Tensor) -> Tensor:
        return values.log()

    def softmax(self, logits: Tensor) -> Tensor:
        """Return ``softmax(logits)`` over the classes, without gradient; both (n, C)."""
        values, classes = class_major(logits)
        return by_nodes(torch.softmax(values, classes), classes)

    def softmax_and_log(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``softmax(logits)`` over the classes and its logarithm, without gradient; all (n, C)."""
        values, classes = class_major(logits)
        log_p = by_nodes(torch.log_softmax(values, classes), classes)
        return log_p.exp(), log_p

    def entropy(self, logits: Tensor) -> Tensor:
        """Return ``1/n sum_u E(p_u)``, ``E(p) = -sum_k p_k log p_k``; gradient ``-p_k (log p_k + E) / n``."""
        values, classes = class_major(logits)
        log_p = torch.log_softmax(values, classes)
        p = log_p.exp()
        negative = torch.linalg.vecdot(p, log_p, dim=classes)  # -E of each node
        gradient = p.mul_(log_p.sub_(negative.unsqueeze(classes)))
        return with_gradient(logits, -negative.mean(), by_nodes(gradient, classes), -1 / negative.numel())

    def cross_entropy(self, logits: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return ``sum_u w_u (-log p_u) / sum_u w_u`` with a weight per class.

        Shapes: logits (n, C), labels int64 (n), weight (C).
        """
        return F.cross_entropy(logits, labels, weight=weight)

    # products of sparse matrices

    def sparse_product(self, matrix: Matrix, dense: Tensor, *, transposed: bool = False) -> Tensor:
        """Return ``S @ dense``, or ``Sᵀ @ dense``, without autograd; dense (columns, H), or (rows, H).

        The result of a small product lies in memory as ``dense`` does, by rows or by columns, which saves
        transpositions; that of a large one by rows.
        """
        csr = matrix.transposed_csr if transposed else matrix.csr
        rows, width = csr.shape[0], dense.shape[1]
        by_columns = width > 1 and dense.stride() == (1, dense.shape[0])
        with torch.no_grad():
            if by_columns and dense.numel() > BY_COLUMNS_UP_TO:
                dense, by_columns = dense.contiguous(), False
            result = dense.new_empty(width, rows).t() if by_columns else dense.new_empty(rows, width)
            return result.addmm_(csr, dense, beta=0)

    def scattered_product(self, matrix: Matrix, dense: Tensor) -> Tensor:
        """Return ``Sᵀ @ dense`` without autograd and without a stored transpose; dense (rows, H)."""
        rows = dense.detach().index_select(0, matrix.rows) * matrix.values[:, None]
        return dense.new_zeros(matrix.shape[1], dense.shape[1]).index_add_(0, matrix.col.long(), rows)

    def power_sum(
        self, matrix: Matrix, ratio: float, steps: int, start: Tensor, *, transposed: bool = False
    ) -> Tensor:
        """Return ``sum_{k <= steps} (ratio S)^k start`` by Horner's rule, without autograd, or that of Sᵀ.

        Shapes: S (n, n), start and result (n, H).
        """
        product, state = matrix.transposed_product if transposed else matrix.product, start
        for _ in range(steps):
            spread = product(state)
            state = torch.add(start, spread, alpha=ratio, out=spread)
        return state

    # layers of GAT and MoNet; nothing flows back to the features

    def attend(self, pattern: Matrix, alpha: Tensor, h: Tensor) -> Tensor:
        """Return ``sum_j alpha_ij h_j`` over the entries (i, j) of ``pattern``, each head by itself.

        Shapes: alpha (nnz, heads), h (N, heads, F); result (N, heads, F), differentiable in both.
        """
        out: Tensor = Attend.apply(pattern, alpha, h)  # type: ignore[no-untyped-call]
        return out

    def attention(
        self,
        pattern: Matrix,
        source: Tensor,
        target: Tensor,
        h: Tensor,
        mask: Tensor | None = None,
        of_edges: Tensor | None = None,
    ) -> Tensor:
        """Return ``sum_j m_ij alpha_ij h_j``, alpha the softmax of ``leaky_relu(source_j + target_i + e)``.

        Shapes: source, target (N, heads), mask m and ``of_edges`` e (nnz, heads), 1 and 0 without them, h
        (N, heads, F); result (N, heads, F).
        """
        scores = source.index_select(0, pattern.col) + target.index_select(0, pattern.rows)
        scores = scores if of_edges is None else scores + of_edges
        alpha = edge_softmax(pattern, F.leaky_relu(scores, SLOPE))
        return self.attend(pattern, alpha if mask is None else alpha * mask, h)

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
