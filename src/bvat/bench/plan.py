"""What a benchmark measures, and for how long."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from bvat.perturb.methods import METHODS, ON_GCN

SPACES = ("factored", "sparse", "dense")


@dataclass(frozen=True)
class BenchRow:
    """A method, or a variant of one, in the tables and charts of the benchmark."""

    method: str
    title: str
    colour: int
    overrides: dict[str, Any] = field(default_factory=dict)
    """Settings that differ from the preset."""


ROWS = {name: BenchRow(row.name, row.short, row.colour) for name, row in ON_GCN.items() if name != "grand"}
ROWS["obvat"] = BenchRow(
    "obvat", "O-BVAT, 10 steps", METHODS["obvat"].colour, {"search": "adam", "steps": 10}
)
ROWS["obvat-fast"] = BenchRow(
    "obvat",
    "O-BVAT, fast search",
    min(set(range(8)) - {method.colour for method in METHODS.values()}, default=5),
    {"search": "fast", "steps": 1, "masks": "reuse"},
)
ROWS["random-propagation"] = BenchRow(
    "grand",
    "random propagation, 4 passes",
    METHODS["grand"].colour,
    {"model": "random-propagation", "ramp": 0},
)
"""The methods with their presets, except O-BVAT: ten steps of Adam, and one full step of the fast search that
reuses the projection of the clean pass. Random propagation
stands for GRAND, with the model that GRAND is made for."""

GCN_ROWS = tuple(name for name, row in ROWS.items() if "model" not in row.overrides)
"""The rows that are a GCN."""


@dataclass(frozen=True)
class Budget:
    """How long to measure: warm-up rounds, then rounds until there are enough or the time is up."""

    warmup: int = 5
    rounds: int = 200
    seconds: float = 60.0
    min_rounds: int = 5
    """Rounds that are run however long they take."""


@dataclass(frozen=True)
class Growth:
    """The sizes of the synthetic graphs; each axis is varied while the others keep their ``base`` value.

    There are edges / 10 nodes, so that the average degree is 20.
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
    budget: Budget = Budget(warmup=1, rounds=30, seconds=5.0, min_rounds=2)


@dataclass(frozen=True)
class Plan:
    """What to measure; ``growth`` None and ``limit`` False skip those sections."""

    datasets: tuple[str, ...] = ("cora", "citeseer", "pubmed", "nell")
    methods: tuple[str, ...] = tuple(ROWS)
    space_methods: tuple[str, ...] = ("vat", "sbvat", "obvat")
    spaces: tuple[str, ...] = SPACES
    max_dense_gb: float = 4.0
    """A dense perturbation that takes more than this per copy is skipped."""
    method_budget: Budget = Budget(seconds=30.0)
    pyg_budget: Budget = Budget(warmup=2, rounds=100, seconds=12.0)
    space_budget: Budget = Budget(warmup=1, rounds=50, seconds=8.0, min_rounds=3)
    memory_epochs: int = 3
    search_datasets: tuple[str, ...] = ("cora", "citeseer", "pubmed")
    compiled_datasets: tuple[str, ...] = ("cora", "pubmed")
    compiled_widths: tuple[int, ...] = (16, 32, 64, 128, 256)
    compiled_budget: Budget = Budget(warmup=2, rounds=100, seconds=3.0, min_rounds=5)
    """For each pair of plain and compiled."""
    growth: Growth | None = Growth()
    limit: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return asdict(self)


FULL = Plan()
QUICK = Plan(
    datasets=("cora", "pubmed"),
    method_budget=Budget(seconds=8.0),
    pyg_budget=Budget(warmup=1, rounds=50, seconds=4.0, min_rounds=3),
    space_budget=Budget(warmup=1, rounds=30, seconds=2.0, min_rounds=2),
    memory_epochs=2,
    search_datasets=(),
    compiled_datasets=("cora",),
    compiled_widths=(16, 64),
    compiled_budget=Budget(warmup=2, rounds=50, seconds=1.0, min_rounds=3),
    growth=None,
    limit=False,
)
