"""What ``bvat bench`` measures, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bvat.perturb.methods import ON_GCN
from bvat.training.settings import Settings, has_preset, preset_among


@dataclass(frozen=True)
class BenchRow:
    """A method, or a variant of one, in the tables of the benchmark."""

    method: str
    title: str
    overrides: dict[str, Any] = field(default_factory=dict)
    """Settings that differ from the preset."""


ROWS = {name: BenchRow(row.name, row.short) for name, row in ON_GCN.items() if name != "grand"}
ROWS["obvat"] = BenchRow("obvat", "O-BVAT, 10 steps", {"search": "adam", "steps": 10})
ROWS["obvat-fast"] = BenchRow(
    "obvat", "O-BVAT, fast search", {"search": "fast", "steps": 1, "masks": "reuse"}
)
ROWS["random-propagation"] = BenchRow(
    "grand", "random propagation, 4 passes", {"model": "random-propagation", "ramp": 0}
)
"""The methods with their presets, except O-BVAT: ten steps of Adam, and one full step of the fast search that
reuses the projection of the clean pass. Random propagation stands for GRAND, with the model that GRAND is
made for."""


def settings_of(dataset: str, row: str, **changes: Any) -> Settings:
    """Return the settings of a row of the benchmark on a data set.

    Presets of other graphs start with a phase without the regulariser, and then leave out nodes that the
    model is unsure of. Here the regulariser acts on all nodes from the first epoch.
    """
    at_once = {} if has_preset(dataset) else {"pretrain": 0, "ramp": 0, "confidence": 0.0}
    return preset_among(dataset, ROWS[row].method, **{**at_once, **ROWS[row].overrides, **changes})


@dataclass(frozen=True)
class Budget:
    """How long to measure: warm-up rounds, then rounds until there are enough or the time is up."""

    warmup: int = 5
    rounds: int = 200
    seconds: float = 60.0
    min_rounds: int = 5
    """Rounds that are run however long they take."""


@dataclass(frozen=True)
class BenchPlan:
    """What to measure."""

    datasets: tuple[str, ...] = ("cora", "citeseer", "pubmed", "nell")
    methods: tuple[str, ...] = tuple(ROWS)
    method_budget: Budget = Budget(seconds=30.0)
    pyg_budget: Budget = Budget(warmup=2, rounds=100, seconds=12.0)


FULL = BenchPlan()
QUICK = BenchPlan(
    datasets=("cora", "pubmed"),
    method_budget=Budget(seconds=8.0),
    pyg_budget=Budget(warmup=1, rounds=50, seconds=4.0, min_rounds=3),
)
