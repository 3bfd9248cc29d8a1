"""Which nodes enter the regulariser: all of them, or some whose receptive fields do not meet."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bvat.engine.compiled.compile import Compiled
from bvat.engine.draws import RowDraws
from bvat.engine.world import current
from bvat.errors import SettingsError
from bvat.graph.inputs import GraphInputs
from bvat.models.base import required


@dataclass(frozen=True)
class Selection:
    """The chosen nodes V_S and their receptive fields.

    Shapes: chosen int64 (b), None for every node; owner int64 (N), the position in ``chosen`` of the node in
    whose receptive field a node lies, -1 for none, None where the fields may meet. Over several ranks
    ``chosen`` are the own ones, and ``numbers`` int64 (b) their positions among those of all ranks, which
    ``owner`` counts.
    """

    chosen: Tensor | None = None
    owner: Tensor | None = None
    numbers: Tensor | None = None

    def only(self, kept: Tensor) -> Selection:
        """Return the selection without the chosen nodes that are not ``kept``, bool (b), and their fields."""
        if self.chosen is None:
            raise SettingsError("only a selection of some nodes can be made smaller")
        if self.owner is None:
            return Selection(self.chosen[kept])
        flags = kept
        if self.numbers is not None:
            flags = torch.zeros(current().total(kept.numel()), dtype=torch.int64)
            flags[self.numbers[kept]] = 1
            flags = current().counts(flags) > 0
        place = torch.where(flags, torch.cumsum(flags, 0) - 1, -1)
        owner = torch.where(self.owner >= 0, place[self.owner.clamp_min(0)], -1)
        numbers = None if self.numbers is None else place[self.numbers[kept]]
        return Selection(self.chosen[kept], owner, numbers)

    def field_nodes(self) -> Tensor | None:
        """Return the union of the receptive fields, ascending; None when it is the whole graph."""
        return None if self.owner is None else torch.nonzero(self.owner >= 0).flatten()


class NodeSelection(Protocol):
    """Chooses nodes anew for each call of a regulariser."""

    def choose(
        self,
        inputs: GraphInputs,
        depth: int,
        generator: torch.Generator | None,
        among: Tensor | None = None,
    ) -> Selection:
        """Choose nodes of a graph for a model that looks ``depth`` hops far (-1: unknown).

        Only ``among`` int64 (m), without repeats, can be chosen; None stands for all nodes.
        """


class AllNodes:
    """Every node (VAT, O-BVAT)."""

    def choose(
        self,
        inputs: GraphInputs,
        depth: int,
        generator: torch.Generator | None,
        among: Tensor | None = None,
    ) -> Selection:
        """Choose all nodes, or all of those that can be chosen."""
        return Selection(among)


FEW = 0.5
"""Share of the nodes asked for below which a selection counts as far too small."""


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=5)  # where the regulariser is called


@dataclass
class DisjointFields:
    """At most ``count`` nodes whose receptive fields (K-hop balls) do not meet: Algorithm 1, lines 1 to 6.

    A node may follow if its ball meets no ball chosen before. On an undirected graph that is the same as a
    distance above 2K, and it takes a walk of K hops only, which also tells who owns each node. When no
    candidate is left before ``count`` are found, there are fewer: ``len(selection.chosen)`` says how many.

    Args:
        count: number of nodes B.
        tell: called once with a sentence if fewer than half of them are found; by default it warns.
    """

    count: int = 100
    tell: Callable[[str], None] = field(default=_warn, repr=False, compare=False)
    told: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.count < 1:
            raise SettingsError(f"the number of sampled nodes must be at least 1, not {self.count}")

    def choose(
        self,
        inputs: GraphInputs,
        depth: int,
        generator: torch.Generator | None,
        among: Tensor | None = None,
    ) -> Selection:
        """Choose nodes at random, one after another, until ``count`` are found or none is left."""
        if depth < 0:
            raise SettingsError(
                "S-BVAT needs the depth of the model, which could not be determined: "
                "pass bvat.wrap(model, depth=K)"
            )
        if depth > 0 and not isinstance(getattr(inputs, "edge_index", inputs.propagation.crow), Tensor):
            raise SettingsError("receptive fields need the edges as a tensor: pass edge_index=... (2, E)")
        matrix = inputs.propagation
        if isinstance(generator, RowDraws):
            from bvat.engine.rank_fields import disjoint_fields

            selection = Selection(*disjoint_fields(matrix, depth, self.count, generator))
            self._check(current().total(len(selection.chosen)), matrix.halo.world.nodes, depth)
            return selection
        size = matrix.shape[0] if among is None else among.numel()
        crow, col = matrix.crow.cpu().numpy(), matrix.col.cpu().numpy()
        generator = required(generator)
        device = generator.device
        owner = np.full(matrix.shape[0], -1, dtype=np.int64)
        rejected = np.zeros(matrix.shape[0], dtype=np.bool_)
        chosen = np.empty(min(self.count, size), dtype=np.int64)
        # A uniform draw from all nodes, thrown away unless still a candidate, is a uniform draw from the
        # candidates. It needs no permutation of the whole graph; only when candidates get rare is one drawn.
        few = torch.randint(size, (8 * chosen.size,), generator=generator, device=device)
        found = _grow(crow, col, depth, _numbers(few, among), owner, rejected, chosen, 0)
        if found < chosen.size:
            rest = torch.randperm(size, generator=generator, device=device)
            found = _grow(crow, col, depth, _numbers(rest, among), owner, rejected, chosen, found)
        self._check(found, size, depth)
        return Selection(
            torch.from_numpy(chosen[:found]).to(matrix.device), torch.from_numpy(owner).to(matrix.device)
        )

    def _check(self, found: int, size: int, depth: int) -> None:
        """Say once that far fewer nodes are found than asked for."""
        if found < FEW * min(self.count, size) and not self.told:
            self.told = True
            self.tell(
                f"S-BVAT finds fewer than half of the {self.count} nodes asked for, because receptive fields "
                f"of {depth} hops soon meet in this graph: use fewer layers, a smaller count, or VAT or "
                "O-BVAT, which take all nodes"
            )


def _numbers(drawn: Tensor, among: Tensor | None) -> NDArray[np.int64]:
    """Return the nodes that stand at the drawn places, int64."""
    drawn = drawn.cpu()
    return (drawn if among is None else among.cpu()[drawn]).numpy()


@Compiled
def _grow(
    crow: Any, col: Any, depth: int, candidates: Any, owner: Any, rejected: Any, chosen: Any, found: int
) -> int:
    """Go through the candidates in order and choose those whose ball meets none chosen before.

    ``owner``, ``rejected`` and ``chosen`` are changed in place; returns how many are chosen in all.
    """
    ball = np.empty(crow.shape[0], dtype=np.int64)
    for u in candidates:
        if found == chosen.shape[0]:
            break
        if owner[u] >= 0 or rejected[u]:
            continue
        ball[0] = u
        size, reached = 1, 0
        owner[u] = found
        free = True
        for _ in range(depth):
            stop = size
            while reached < stop and free:
                v = ball[reached]
                reached += 1
                for k in range(crow[v], crow[v + 1]):
                    w = col[k]
                    if owner[w] == -1:
                        owner[w] = found
                        ball[size] = w
                        size += 1
                    elif owner[w] != found:
                        free = False
                        break
        if free:
            chosen[found] = u
            found += 1
        else:
            rejected[u] = True
            for i in range(size):
                owner[ball[i]] = -1
    return found
