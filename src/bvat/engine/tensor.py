"""The mathematics of bvat on tensors: every operation that has a faster form, or one over several ranks.

A matrix and a graph carry their engine; models, searches and losses ask it and nothing else.
:class:`bvat.engine.compiled.engine.CompiledEngine` overrides what compiled loops do faster, and
:class:`bvat.engine.ranks.RankEngine` sums, products and draws over several processes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from bvat.engine.attention import AttentionMath
from bvat.engine.compiled.adam import adam_step_
from bvat.engine.compiled.backend import LayeredPass
from bvat.engine.draws import Draws, TensorDraws
from bvat.engine.fields import grown_fields
from bvat.engine.matrix import Matrix
from bvat.engine.propagation import PropagationMath

T = TypeVar("T")

BY_COLUMNS_UP_TO = 2**18
"""Entries of a dense matrix up to which it may lie by columns: a larger one does not stay in the cache, and a
product would fetch a line of memory for every column of a neighbour instead of one for all."""

CLASS_MAJOR_UP_TO = 32
"""Number of classes up to which class-major is faster; beyond, the transposition costs more than it saves."""


class Trace(NamedTuple):
    """What the backward pass of a GCN needs of its forward pass."""

    hidden: list[Tensor]  # H_l = dropout(relu(A_l)), (N, H_l)
    inputs: list[Tensor]  # what W_l was multiplied with: H_l, or Â H_l, (N, H_l)


class AdamSteps(NamedTuple):
    """Steps of Adam up ``1 / divisor sum_u LDS_u - penalty / 2 |R|²``."""

    steps: int
    step_size: float
    betas: tuple[float, float]
    penalty: float
    divisor: int


class _KnownGradient(torch.autograd.Function):
    """A scalar whose gradient with respect to the logits has been worked out beside it."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, value: Tensor, gradient: Tensor, scale: float) -> Tensor:
        ctx.gradient, ctx.scale = gradient, scale
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.gradient * (grads[0] * ctx.scale), None, None, None


def with_gradient(logits: Tensor, value: Tensor, gradient: Tensor, scale: float = 1.0) -> Tensor:
    """Return ``value`` as a function of ``logits`` (n, C) with the gradient ``scale * gradient`` (n, C)."""
    attached: Tensor = _KnownGradient.apply(logits, value, gradient, scale)  # type: ignore[no-untyped-call]
    return attached


def class_major(logits: Tensor) -> tuple[Tensor, int]:
    """Return the logits (n, C) in the faster layout, (C, n) or (n, C), and the dimension of the classes.

    A softmax over a few classes vectorises over the nodes when the classes are the outer dimension in memory:
    on (C, n) it is twenty times faster than over the rows of (n, C).
    """
    logits = logits.detach()
    if logits.shape[1] > CLASS_MAJOR_UP_TO:
        return logits, 1
    return logits.t().contiguous(), 0


def by_nodes(values: Tensor, classes: int) -> Tensor:
    """Return (n, C) as a view of what :func:`class_major` returned."""
    return values if classes == 1 else values.t()


def node_product(a: Tensor, b: Tensor) -> Tensor:
    """Return ``aᵀ b``; a (n, K), b (n, M).

    The narrower factor stands first: the other order takes up to twenty times as long for a few columns.
    """
    return a.t() @ b if a.shape[1] <= b.shape[1] else (b.t() @ a).t()


def _multiply(csr: Tensor, dense: Tensor) -> Tensor:
    """Return ``csr @ dense`` without autograd, into memory that need not be cleared first.

    The result of a small product lies in memory as ``dense`` does, by rows or by columns, which saves
    transpositions; that of a large one by rows.
    """
    rows, width = csr.shape[0], dense.shape[1]
    by_columns = width > 1 and dense.stride() == (1, dense.shape[0])
    with torch.no_grad():
        if by_columns and dense.numel() > BY_COLUMNS_UP_TO:
            dense, by_columns = dense.contiguous(), False
        result = dense.new_empty(width, rows).t() if by_columns else dense.new_empty(rows, width)
        return result.addmm_(csr, dense, beta=0)


class TensorEngine(AttentionMath, PropagationMath):
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
        """Return ``sum_v a_v b_vᵀ`` over all nodes; a (n, K), b (n, M), result (K, M)."""
        return node_product(a, b)

    def column_sums(self, a: Tensor) -> Tensor:
        """Return ``sum_v a_v`` over all nodes; a (n, K), result (K)."""
        return a.sum(0)

    # rows of nodes

    def times(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Return ``rows @ weight``, differentiable; rows (n, K), weight (K, M)."""
        return rows @ weight

    def plus(self, rows: Tensor, bias: Tensor) -> Tensor:
        """Return ``rows + bias``, differentiable; rows (n, K), bias (K)."""
        return rows + bias

    def plus_times(self, base: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
        """Return ``base + rows @ weight`` without gradient; base (n, M)."""
        return torch.addmm(base, rows, weight)

    def narrow_times(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Return ``rows @ weight`` stored by columns, several times faster where weight has few columns.

        Two transposed factors are a slow case of some linear algebra libraries, hence the copy.
        """
        return (weight.t().contiguous() @ rows.t()).t()

    def row_dots(self, a: Tensor, b: Tensor) -> Tensor:
        """Return ``sum_j a_vj b_vj`` of every row v, without gradient; a, b (n, H), result (n)."""
        return torch.einsum("nh,nh->n", a, b)

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
        """Return ``sum_u w_u (-log p_u) / sum_u w_u``; logits (n, C), labels int64 (n), weight (C)."""
        return F.cross_entropy(logits, labels, weight=weight)

    # sparse matrices

    def product(self, matrix: Matrix, dense: Tensor) -> Tensor:
        """Return ``S @ dense`` without autograd; dense (columns, H), result (rows, H)."""
        return _multiply(matrix.csr, dense)

    def transposed_product(self, matrix: Matrix, dense: Tensor) -> Tensor:
        """Return ``Sᵀ @ dense`` without autograd by the stored transpose; dense (rows, H)."""
        return _multiply(matrix.transposed_csr, dense)

    def scattered_product(self, matrix: Matrix, dense: Tensor) -> Tensor:
        """Return ``Sᵀ @ dense`` without autograd and without a stored transpose; dense (rows, H)."""
        rows = dense.detach().index_select(0, matrix.rows) * matrix.values[:, None]
        return dense.new_zeros(matrix.shape[1], dense.shape[1]).index_add_(0, matrix.col.long(), rows)

    # the layers of a GCN

    def gcn_forward(self, step: LayeredPass, projected: Tensor) -> tuple[Tensor, Trace]:
        """Return the logits of a GCN given its projected features, without autograd.

        ``A_1 = Â P``, then for each further layer ``A_{l+1} = Â dropout(relu(A_l)) W_l``, where Â is applied
        on the narrower side of W_l.

        Shapes: projected P (N, H_1); logits (N, C).
        """
        trace = Trace([], [])
        state = step.matrices[0].product(projected)
        for layer, weight in enumerate(step.weights):
            hidden = state.clamp_min_(0)
            if step.masks:
                hidden.mul_(step.masks[layer][: hidden.shape[0]])
            matrix = step.matrices[layer + 1]
            multiplied = matrix.product(hidden) if _widens(weight) else hidden
            if _widens(weight):
                state = self.times(multiplied, weight)
            else:
                state = matrix.product(self.narrow_times(hidden, weight))
            trace.hidden.append(hidden)
            trace.inputs.append(multiplied)
        return state, trace

    def gcn_backward(
        self, step: LayeredPass, trace: Trace, grad: Tensor, *, for_weights: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """Pull a gradient with respect to the logits back to the projected features and the weights.

        One recursion through Âᵀ: ``B = Âᵀ G``, ``dW_l = H_lᵀ B``, ``G = factor (B W_lᵀ) where H_l > 0``.
        Dropout and relu together pass the gradient on, times ``factor``, exactly where their output is
        positive.

        Shapes: grad (N, C); result (N, H_1) and one (H_l, H_{l+1}) per weight (none unless ``for_weights``).
        """
        weight_grads: list[Tensor] = []
        layers = zip(step.matrices[1:], step.weights, *trace, strict=True)
        for matrix, weight, hidden, multiplied in reversed(list(layers)):
            if not _widens(weight):
                grad = matrix.transposed_product(grad)
            if for_weights:
                weight_grads.append(self.node_product(multiplied, grad))
            grad = self.times(grad, (step.factor * weight).t())
            if _widens(weight):
                grad = matrix.transposed_product(grad)
            grad = torch.ops.aten.threshold_backward(grad, hidden, 0)
        return step.matrices[0].transposed_product(grad), weight_grads[::-1]

    # searches; a problem is a :class:`bvat.perturb.problem.Problem`

    def adam_ascent(self, problem: Any, r: Tensor, moments: dict[str, Tensor], ascent: AdamSteps) -> None:
        """Make steps of Adam up the problem's loss from r; r and the moments change in place."""
        for _ in range(ascent.steps):
            gradient = problem.gradient(r)
            if ascent.divisor > 1:
                gradient.div_(ascent.divisor)
            self.adam_step(r, gradient, moments, ascent)

    def adam_step(self, r: Tensor, gradient: Tensor, moments: dict[str, Tensor], ascent: AdamSteps) -> None:
        """Make one step, in one pass over memory: the penalty's gradient is Adam's weight decay."""
        state = [r], [gradient], [moments["first"]], [moments["second"]], [moments["count"]]
        rates = {"lr": ascent.step_size, "betas": ascent.betas, "weight_decay": ascent.penalty}
        adam_step_(*state, **rates, maximize=True)  # type: ignore[arg-type]

    def power_step(self, problem: Any, search: Any, last: Callable[[], Any]) -> tuple[Tensor, Tensor]:
        """Return the loss at what a power iteration from r = 0 finds, and the squared lengths of its rows.

        ``last`` gives masks and projected features of the pass in which the loss is taken.
        """
        with torch.no_grad():
            found = search.find(problem, None)
        return problem.loss(found, last), found.row_squares

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
        return TensorDraws(torch.Generator(graph.device).manual_seed(seed))

    def own_file(self, path: Path, epoch: int) -> Path | None:
        """Return the file for what only this rank has of a checkpoint; None alone."""
        return None

    def agree(self, make: Callable[[], T]) -> T:
        """Return what ``make`` returns on the leading rank."""
        return make()

    def barrier(self) -> None:
        """Wait until all ranks are here."""


def _widens(weight: Tensor) -> bool:
    return weight.shape[1] > weight.shape[0]
