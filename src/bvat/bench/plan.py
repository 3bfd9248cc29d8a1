"""What a benchmark measures, and how often. This module imports nothing heavy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

METHODS = ("gcn", "consistency", "random", "vat", "sbvat", "obvat", "obvat-fast")
"""The training methods, and O-BVAT with the fast search."""
SPACES = ("factored", "sparse", "dense")


@dataclass(frozen=True)
class Effort:
    """How long to measure: warm-up rounds, then rounds until there are enough or the time is over."""

    warmup: int = 5
    rounds: int = 200
    seconds: float = 60.0
    least: int = 5
    """Rounds that are made however long they take."""


@dataclass(frozen=True)
class Growth:
    """The sizes of the synthetic graphs; each axis is varied with the rest as in the other fields.

    Nodes are edges / 10, so that the average degree is 20.
    """

    edges: tuple[int, ...] = (10_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
    features: tuple[int, ...] = (100, 1_000, 10_000, 100_000)
    hidden: tuple[int, ...] = (16, 64, 256)
    methods: tuple[str, ...] = ("gcn", "obvat")
    base_edges: int = 100_000
    base_features: int = 1_000
    base_hidden: int = 16
    classes: int = 8
    fit_edges_from: int = 100_000
    """The exponent against edges is fitted from here on; below, fixed costs hide the growth."""
    effort: Effort = Effort(warmup=1, rounds=30, seconds=5.0, least=2)


@dataclass(frozen=True)
class Plan:
    """What to measure; ``growth`` None and ``limit`` False leave out points 4 and 5."""

    datasets: tuple[str, ...] = ("cora", "citeseer", "pubmed", "nell")
    methods: tuple[str, ...] = METHODS
    space_methods: tuple[str, ...] = ("vat", "sbvat", "obvat")
    spaces: tuple[str, ...] = SPACES
    dense_at_most_gb: float = 4.0
    """A dense perturbation that takes more than this a copy is skipped."""
    method_effort: Effort = Effort(seconds=30.0)
    pyg_effort: Effort = Effort(warmup=2, rounds=100, seconds=12.0)
    space_effort: Effort = Effort(warmup=1, rounds=50, seconds=8.0, least=3)
    memory_epochs: int = 3
    search_datasets: tuple[str, ...] = ("cora", "citeseer", "pubmed")
    growth: Growth | None = Growth()
    limit: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return asdict(self)


FULL = Plan()
QUICK = Plan(
    datasets=("cora", "pubmed"),
    method_effort=Effort(seconds=8.0),
    pyg_effort=Effort(warmup=1, rounds=50, seconds=4.0, least=3),
    space_effort=Effort(warmup=1, rounds=30, seconds=2.0, least=2),
    memory_epochs=2,
    search_datasets=(),
    growth=None,
    limit=False,
)
