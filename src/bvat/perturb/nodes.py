"""Which nodes enter the regulariser: all of them, or some whose receptive fields do not meet."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from bvat.engine.draws import Source, as_draws
from bvat.engine.tensor import TensorEngine
from bvat.errors import SettingsError
from bvat.graph.inputs import GraphInputs


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

    def part_of(self, rows: Tensor) -> Tensor:
        """Return the rows (b, ...) of the chosen nodes, of a tensor with one for every node (N, ...)."""
        return rows if self.chosen is None else rows.index_select(0, self.chosen)

    def only(self, kept: Tensor, engine: TensorEngine) -> Selection:
        """Return the selection without the chosen nodes that are not ``kept``, bool (b), and their fields."""
        if self.chosen is None:
            raise SettingsError("only a selection of some nodes can be made smaller")
        if self.owner is None:
            return Selection(self.chosen[kept])
        flags = kept
        if self.numbers is not None:
            flags = torch.zeros(engine.total(kept.numel()), dtype=torch.int64)
            flags[self.numbers[kept]] = 1
            flags = engine.counts(flags) > 0
        place = torch.where(flags, torch.cumsum(flags, 0) - 1, -1)
        owner = torch.where(self.owner >= 0, place[self.owner.clamp_min(0)], -1)
        numbers = None if self.numbers is None else place[self.numbers[kept]]
        return Selection(self.chosen[kept], owner, numbers)


class AllNodes:
    """Every node (VAT, O-BVAT)."""

    def choose(
        self, inputs: GraphInputs, depth: int, generator: Source | None, among: Tensor | None = None
    ) -> Selection:
        """Choose nodes of a graph for a model that looks ``depth`` hops far (-1: unknown), in each call anew.

        Only ``among`` int64 (m), without repeats, can be chosen; None stands for all nodes.
        """
        return Selection(among)


FEW = 0.5
"""Share of the nodes asked for below which a selection counts as far too small."""


@dataclass
class DisjointFields(AllNodes):
    """At most ``count`` nodes whose receptive fields (K-hop balls) do not meet: Algorithm 1, lines 1 to 6.

    A node may follow if its ball meets no ball chosen before. On an undirected graph that is the same as a
    distance above 2K; on a directed one the ball has the nodes from which at most K edges lead to the node.
    It takes a walk of K hops only, which also tells who owns each node. When no candidate is left before
    ``count`` are found, there are fewer: ``len(selection.chosen)`` says how many.

    Args:
        count: number of nodes B.
        tell: called once with a sentence if fewer than half of them are found; by default it warns.
    """

    count: int = 100
    tell: Callable[[str], None] | None = field(default=None, repr=False, compare=False)
    told: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.count < 1:
            raise SettingsError(f"the number of sampled nodes must be at least 1, not {self.count}")

    def choose(
        self, inputs: GraphInputs, depth: int, generator: Source | None, among: Tensor | None = None
    ) -> Selection:
        if depth < 0:
            raise SettingsError(
                "S-BVAT needs the depth of the model, which could not be determined: "
                "pass bvat.wrap(model, depth=K)"
            )
        if depth > 0 and not isinstance(getattr(inputs, "edge_index", inputs.propagation.crow), Tensor):
            raise SettingsError("receptive fields need the edges as a tensor: pass edge_index=... (2, E)")
        matrix, engine = inputs.propagation, inputs.engine
        chosen, *rest = engine.disjoint_fields(matrix, depth, self.count, as_draws(generator), among)
        size = engine.total(matrix.shape[0] if among is None else among.numel())
        if engine.total(chosen.numel()) < FEW * min(self.count, size) and not self.told:
            self.told = True
            tell = self.tell or partial(warnings.warn, stacklevel=3)  # where the regulariser is called
            tell(
                f"S-BVAT finds fewer than half of the {self.count} nodes asked for, because receptive fields "
                f"of {depth} hops soon meet in this graph: use fewer layers, a smaller count, or VAT or "
                "O-BVAT, which take all nodes"
            )
        return Selection(chosen, *rest)
