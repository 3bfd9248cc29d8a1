"""The processes that ``torchrun`` started: sums over the nodes of all ranks, the same bits for any number.

Every rank calls the same methods in the same order.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.distributed.rendezvous import rendezvous

from bvat.engine import rowwise
from bvat.engine.draws import Draws, RowDraws
from bvat.engine.fields import disjoint_fields
from bvat.engine.tensor import AdamRates, TensorEngine, with_gradient
from bvat.errors import TrainingError

_PASSES = 64
"""The most passes of a model that are averaged at once."""

T = TypeVar("T")


class RankEngine(TensorEngine):
    """The processes that ``torchrun`` started, one part of the graph each.

    Args:
        rank: the number of this process.
        size: the number of processes.
        nodes: N, the number of nodes of all parts.
    """

    def __init__(self, rank: int, size: int, nodes: int) -> None:
        self.rank, self.size, self.nodes = rank, size, nodes
        self.leads, self.processes = rank == 0, size
        self.sent = 0
        """Bytes that this rank has sent in halo exchanges."""

    def reduce(self, tensor: Tensor, kind: Any = dist.ReduceOp.SUM) -> Tensor:
        """Return the sum (or another reduction) of a tensor over the ranks; it is overwritten."""
        if self.size > 1:
            with connected():
                dist.all_reduce(tensor, kind)
        return tensor

    def exchange(self, received: Tensor, sent: Tensor, receive: list[int], send: list[int]) -> Any:
        """Start to send rows to every rank and receive rows; return what ends it when waited for.

        Shapes: sent (sum(send), H), the rows for rank 0 first; received (sum(receive), H).
        """
        self.sent += (sent.shape[0] - send[self.rank]) * sent.shape[1:].numel() * sent.element_size()
        with connected():
            return dist.all_to_all_single(received, sent, receive, send, async_op=True)

    def deliver(self, rows: Tensor, counts: list[int]) -> Tensor:
        """Send rows (sum(counts), k), those for rank 0 first; return the rows that arrive from all ranks."""
        sizes = torch.tensor(counts, dtype=torch.int64)
        arriving = torch.empty_like(sizes)
        with connected():
            dist.all_to_all_single(arriving, sizes)
            received = rows.new_empty(int(arriving.sum()), rows.shape[1])
            dist.all_to_all_single(received, rows, arriving.tolist(), counts)
        return received

    def total(self, number: int) -> int:
        return int(self.reduce(torch.tensor(number, dtype=torch.int64)))

    def any(self, flag: bool) -> bool:
        return bool(self.total(int(flag)))

    def counts(self, counts: Tensor) -> Tensor:
        return self.reduce(counts.clone())

    def _bounds(self, *tensors: Tensor) -> list[float]:
        """Return the largest absolute value of each tensor over the ranks."""
        local = [float(t.detach().abs().amax()) if t.numel() else 0.0 for t in tensors]
        return list(self.reduce(torch.tensor(local, dtype=torch.float64), dist.ReduceOp.MAX).tolist())

    def mean(self, values: Tensor) -> Tensor:
        # several passes may come at once, each with its values of the nodes
        rounder = rowwise.magic(self._bounds(values)[0], _PASSES * self.nodes)
        wide = values.detach().double()
        pair = torch.stack([((wide + rounder) - rounder).sum(), wide.new_tensor(wide.numel())])
        summed = self.reduce(pair)
        return (summed[0] / summed[1]).to(values.dtype)

    def largest(self, values: Tensor) -> Tensor:
        found = values.detach().amax() if values.numel() else values.new_zeros(())
        return self.reduce(found.reshape(1), dist.ReduceOp.MAX)[0]

    def group_sums(self, values: Tensor, group: Tensor, groups: int) -> Tensor:
        rounder = rowwise.magic(self._bounds(values)[0], self.nodes)
        return self.reduce(rowwise.group_sums(values, group, groups, rounder)).to(values.dtype)

    def rounder(self, a: Tensor, b: Tensor) -> float:
        """Return the rounder for sums of products of entries of a and b over all nodes."""
        largest, other = self._bounds(a, b)
        return rowwise.magic(largest * other, self.nodes)

    def node_product(self, a: Tensor, b: Tensor) -> Tensor:
        return self.reduce(rowwise.node_product(a, b, self.rounder(a, b))).to(a.dtype)

    def column_sums(self, a: Tensor) -> Tensor:
        rounder = rowwise.magic(self._bounds(a)[0], self.nodes)
        return self.reduce(((a.detach().double() + rounder) - rounder).sum(0)).to(a.dtype)

    def plus(self, rows: Tensor, bias: Tensor) -> Tensor:
        total: Tensor = _Plus.apply(self, rows, bias)  # type: ignore[no-untyped-call]
        return total

    def plus_times(self, base: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
        return rowwise.times(rows, weight).add_(base.detach())

    def plain_times(self, rows: Tensor, weight: Tensor) -> Tensor:
        return rowwise.times(rows, weight)

    narrow_times = plain_times

    def row_dots(self, a: Tensor, b: Tensor) -> Tensor:
        return rowwise.row_dots(a, b)

    def row_sums(self, a: Tensor) -> Tensor:
        return rowwise.row_dots(a, torch.ones_like(a))

    def log(self, values: Tensor) -> Tensor:
        return rowwise.log(values)

    def softmax(self, logits: Tensor) -> Tensor:
        return rowwise.softmax(logits)[0]

    def softmax_and_log(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        return rowwise.softmax(logits)

    def entropy(self, logits: Tensor) -> Tensor:
        p, log_p = rowwise.softmax(logits)
        negative = rowwise.row_dots(p, log_p)
        gradient = p.mul_(log_p.sub_(negative[:, None]))
        return with_gradient(logits, -self.mean(negative), gradient, -1 / self.total(negative.numel()))

    def cross_entropy(self, logits: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
        p, log_p = rowwise.softmax(logits)
        share = torch.ones_like(labels, dtype=p.dtype) if weight is None else weight[labels]
        at = labels[:, None]
        value = self.mean(-share * log_p.gather(1, at)[:, 0]) / self.mean(share)
        gradient = p.scatter_add_(1, at, torch.full_like(p[:, :1], -1.0)).mul_(share[:, None])
        counted = float(self.mean(share)) * self.total(labels.numel())
        return with_gradient(logits, value, gradient, 1 / counted)

    def adam_step(self, r: Tensor, gradient: Tensor, moments: dict[str, Tensor], rates: AdamRates) -> None:
        rowwise.adam_step_(r, gradient, moments, rates)

    def disjoint_fields(
        self, matrix: Any, depth: int, count: int, draws: Draws, among: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        return disjoint_fields(matrix, depth, count, draws)

    def draws(self, seed: int, graph: Any) -> Draws:
        return RowDraws(seed, graph.own_nodes)

    def own_file(self, path: Path, epoch: int) -> Path:
        return path.with_name(f"{path.stem}-rank-{self.rank}-epoch-{epoch}{path.suffix}")

    def agree(self, make: Callable[[], T]) -> T:
        made: list[Any] = [make() if self.leads else None]
        if self.size > 1:
            with connected():
                dist.broadcast_object_list(made, src=0)
        return made[0]  # type: ignore[no-any-return]

    def barrier(self) -> None:
        self.reduce(torch.zeros(1))


class _Plus(torch.autograd.Function):
    """``rows + bias`` whose bias gradient is a sum over the nodes of all ranks."""

    @staticmethod
    def forward(ctx: Any, engine: RankEngine, rows: Tensor, bias: Tensor) -> Tensor:
        ctx.engine = engine
        return rows + bias

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, Tensor]:
        return None, grads[0], ctx.engine.column_sums(grads[0])


@contextmanager
def connected() -> Iterator[None]:
    """Turn the errors of a lost connection inside the block into one sentence."""
    try:
        yield
    except (RuntimeError, dist.DistError) as error:
        if isinstance(error, TrainingError):
            raise
        raise lost(error) from None


def lost(error: Exception) -> TrainingError:
    """Return the error that says that another rank does not answer."""
    late = "tim" in str(error).lower() and "out" in str(error).lower()
    what = "did not answer in time" if late else "ended or closed the connection"
    return TrainingError(f"another rank {what}: see its own message, and start again with --resume")


def connect(rank: int, size: int, timeout: float) -> None:
    """Join the process group of ``torchrun``; gloo waits at most ``timeout`` seconds for another rank.

    The addresses of killed ranks stay in the store of ``torchrun``: each attempt has keys of its own.
    """
    if size == 1 or dist.is_initialized():
        return
    failures: list[Exception] = []
    limit, attempt = timedelta(seconds=timeout), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")

    def initialise() -> None:
        try:
            store = next(rendezvous("env://", rank, size, timeout=limit))[0]
            store = dist.PrefixStore(f"attempt-{attempt}", store)  # type: ignore[attr-defined]
            dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)
        except Exception as error:
            failures.append(error)

    # a thread, because gloo may wait for an address longer than it is told to
    thread = threading.Thread(target=initialise, daemon=True)
    thread.start()
    thread.join(timeout)
    if thread.is_alive():
        raise lost(TimeoutError("timed out"))
    if failures:
        raise lost(failures[0])
