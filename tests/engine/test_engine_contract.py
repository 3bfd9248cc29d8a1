"""What every engine must do: the same pass, loss, gradient and search, on tensors, compiled and over ranks.

An engine of your own passes if ``outcome`` of its graph is that of the tensor engine. Random numbers are
counted per node (``RowDraws``) everywhere, so that all engines draw the same ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import bvat
from bvat.engine.cpu import DEFAULT_ENGINE
from bvat.engine.draws import RowDraws
from bvat.engine.ranks import RankEngine
from bvat.engine.tensor import TensorEngine
from bvat.graph import Graph
from bvat.models.table import MODELS
from bvat.parts.part_graph import own_share, part_graph
from bvat.parts.parts import assign, cut
from bvat.perturb.divergence import entropy
from bvat.perturb.flag import FLAG
from bvat.perturb.searches import AdamAscent, FastAscent
from core_helpers import seeded
from graph_helpers import random_graph

REGULARISERS: dict[str, Callable[[Any], Any]] = {
    "none": lambda draws: None,
    "consistency": lambda draws: bvat.Consistency(generator=draws),
    "random": lambda draws: bvat.Random(0.1, generator=draws),
    "vat": lambda draws: bvat.VAT(0.1, generator=draws),
    "vat from a start": lambda draws: bvat.VAT(0.1, steps=2, xi=0.01, generator=draws),
    "sbvat": lambda draws: bvat.SBVAT(0.1, count=2, norm="field", generator=draws),
    "sure nodes": lambda draws: bvat.SBVAT(0.1, count=2, confidence=0.34, generator=draws),
    "obvat": lambda draws: bvat.Regulariser(search=AdamAscent(3, 0.01), dropout="pair", generator=draws),
    "obvat of means": lambda draws: bvat.Regulariser(
        search=AdamAscent(3, 0.01, reduction="mean"), divergence="squared", generator=draws
    ),
    "fast": lambda draws: bvat.Regulariser(search=FastAscent(0.1), dropout="reuse", generator=draws),
    "flag": lambda draws: FLAG(generator=draws),
}
DISTRIBUTED = [name for name, model in MODELS.items() if model.distributed]
CASES = [(model, "none") for model in DISTRIBUTED] + [("gcn", name) for name in REGULARISERS]


class ThreadRanks(RankEngine):
    """Ranks in threads of one process: only how tensors travel differs."""

    def __init__(self, rank: int, nodes: int, board: Board) -> None:
        super().__init__(rank, board.size, nodes)
        self.board = board

    def reduce(self, tensor: Tensor, kind: Any = dist.ReduceOp.SUM) -> Tensor:
        every = torch.stack(self.board.swap(self.rank, tensor.clone()))
        return tensor.copy_(every.amax(0) if kind == dist.ReduceOp.MAX else every.sum(0))

    def exchange(self, received: Tensor, sent: Tensor, receive: list[int], send: list[int]) -> Any:
        received.copy_(self.deliver(sent, send))
        return SimpleNamespace(wait=lambda: None)

    def deliver(self, rows: Tensor, counts: list[int]) -> Tensor:
        arrived = self.board.swap(self.rank, torch.split(rows, counts))
        return torch.cat([parts[self.rank] for parts in arrived])


class Board:
    """Where the threads leave what they send."""

    def __init__(self, size: int) -> None:
        self.size, self.slots = size, [None] * size
        self.barrier = threading.Barrier(size, timeout=60)

    def swap(self, rank: int, content: Any) -> list[Any]:
        """Return what all ranks have brought."""
        self.slots[rank] = content
        self.barrier.wait()
        found = list(self.slots)
        self.barrier.wait()
        return found


class Counted(RowDraws):
    """Numbers counted per node, also for the edges of a whole graph."""

    def edge_mask(self, matrix: Any, width: int, rate: float, like: Tensor) -> Tensor:
        if hasattr(matrix, "global_entries"):
            return super().edge_mask(matrix, width, rate, like)
        entries = SimpleNamespace(global_entries=(matrix.rows, matrix.col.long()), values=matrix.values)
        return super().edge_mask(entries, width, rate, like)[:, :1]


class Outcome(NamedTuple):
    """Logits (N, C), both losses, number of nodes, lengths, and the gradient of each weight."""

    logits: Tensor
    numbers: Tensor
    gradients: list[Tensor]


def measure(graph: Graph, nodes: Tensor, model_name: str, method: str) -> tuple[Tensor, Outcome]:
    """Make a pass with dropout, all losses and their gradient; nodes int64 (n), the own ones."""
    draws, row = Counted(7, nodes), MODELS[model_name]
    model = row.build(row.options(), graph.num_features, graph.num_classes, seeded(1))
    masks = model.train().draw_masks(graph, draws)
    projected = model.project(graph, masks)
    logits = model.propagate(graph, projected, masks)
    supervised = graph.engine.cross_entropy(logits[graph.train], graph.labels[graph.train])
    loss = supervised + 0.7 * entropy(logits, engine=graph.engine)
    numbers = [loss]
    regulariser = REGULARISERS[method](draws)
    if regulariser is not None:
        found = regulariser(model, graph, logits, masks, projected)
        loss = loss + found.loss
        numbers += [found.loss, torch.tensor(float(found.nodes)), found.row_norm, found.max_row_norm]
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    values = torch.stack([number.detach() for number in numbers])
    return nodes, Outcome(logits.detach(), values, list(gradients))


def alone(name: str, case: tuple[str, str]) -> Outcome:
    """The outcome in one process; searches run on the whole graph, as those over ranks do."""
    graph = random_graph(weighted=True).with_engine(name)  # type: ignore[arg-type]
    object.__setattr__(graph, "perturbed_on", "whole")
    return measure(graph, torch.arange(graph.num_nodes), *case)[1]


def over_ranks(size: int, case: tuple[str, str]) -> Outcome:
    """The outcome of several ranks, with the logits of all nodes in their order."""
    graph, board = random_graph(weighted=True), Board(size)
    parts = list(cut(graph.propagation, assign(graph, size, "random", seed=3)))

    def work(rank: int) -> tuple[Tensor, Outcome]:
        share = own_share(graph, parts[rank])
        sizes = {"whole_nodes": graph.num_nodes, "whole_edges": graph.num_edges}
        about = {**share, **sizes, "class_names": graph.class_names, "fingerprint": ""}
        engine = ThreadRanks(rank, graph.num_nodes, board)
        part = part_graph(engine, parts[rank], about.pop("features"), about)
        return measure(part, part.own_nodes, *case)

    with ThreadPoolExecutor(size) as pool:
        found = list(pool.map(work, range(size)))
    logits = torch.empty(graph.num_nodes, graph.num_classes)
    for nodes, outcome in found:
        logits[nodes] = outcome.logits
        assert torch.equal(outcome.numbers, found[0][1].numbers), "all ranks know the same"
        assert all(map(torch.equal, outcome.gradients, found[0][1].gradients))
    return found[0][1]._replace(logits=logits)


@cache
def outcome(engine: str, case: tuple[str, str]) -> Outcome:
    name, _, size = engine.partition(" ")
    return over_ranks(int(size), case) if name == "ranks" else alone(engine, case)


@pytest.mark.parametrize("engine", ["compiled", "ranks 1"])
@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_every_engine_computes_the_same_up_to_rounding(engine: str, case: tuple[str, str]) -> None:
    expected, found = outcome("tensor", case), outcome(engine, case)
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.numbers, expected.numbers, rtol=2e-4, atol=1e-5)
    for ours, theirs in zip(found.gradients, expected.gradients, strict=True):
        assert float((ours - theirs).norm()) <= 2e-3 * float(theirs.norm()) + 1e-6


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
def test_sums_of_products_over_the_nodes(shape: tuple[int, int]) -> None:
    a, b = (torch.randn(50, width, generator=seeded(width)) for width in shape)
    expected = torch.einsum("nk,nm->km", a, b)
    for engine in (TensorEngine(), DEFAULT_ENGINE, RankEngine(0, 1, 50)):
        for factors in ((a, b), (a.t().contiguous().t(), b)):
            torch.testing.assert_close(engine.node_product(*factors), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_any_number_of_ranks_gives_the_same_bits(size: int, case: tuple[str, str]) -> None:
    expected, found = outcome("ranks 1", case), outcome(f"ranks {size}", case)
    assert torch.equal(found.logits, expected.logits)
    assert torch.equal(found.numbers, expected.numbers)
    assert all(map(torch.equal, found.gradients, expected.gradients))
