"""What to reproduce: data sets, methods, seeds and settings; the numbers that the paper published."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from bvat.baselines.table import BASELINES, PUBLISHED
from bvat.errors import SettingsError
from bvat.models.table import MODELS
from bvat.perturb.methods import ON_GCN
from bvat.training.settings import Settings, has_model_preset, preset_among, preset_key, short_name
from bvat.tuning.variants import Variant

PLAIN_MODELS = ("monet", "gat", "gpnn")
"""Rows of the paper's Table 2 that are other models without a regulariser."""
BEYOND = ("random-propagation/grand", "random-propagation/vat")
"""Rows that the paper does not have, shown where a data set has settings for the model."""
METHODS_OF_GCN = tuple(name for name in ON_GCN if name != "grand")
"""Rows on a GCN; the row of GRAND is that on the model it was made for."""
ROWS = (*PUBLISHED, *PLAIN_MODELS, *ON_GCN, *BEYOND)
"""The rows of Table 2 in the order of the paper; MODEL/METHOD that are not among them follow."""

DEFAULT = "*"
"""The key for all other data sets in a mapping of seeds."""
CHEAP = "cheap"
"""What ``--seeds`` calls the cells of Table 2 in which a run takes seconds."""
CHEAP_DATASETS, CHEAP_ROWS = ("cora", "citeseer"), ("monet", *METHODS_OF_GCN)


NAMES = {"cora": "Cora", "citeseer": "Citeseer", "pubmed": "Pubmed", "nell": "NELL"}


class Published(NamedTuple):
    """A cell of Table 2: test accuracy in percent, and its standard deviation if the paper gives one."""

    mean: float
    std: float | None


@cache
def paper() -> dict[str, Any]:
    return tomllib.loads(resources.files("bvat.paper").joinpath("published.toml").read_text("utf-8"))


def table2(method: str, dataset: str) -> Published | None:
    cell = paper()["table2"].get(method, {}).get(dataset)
    return None if cell is None else Published(cell[0], cell[1] if len(cell) > 1 else None)


def named(dataset: str) -> str:
    name = short_name(dataset)
    return NAMES.get(name, name)


def paper_datasets(target: str) -> list[str]:
    if target == "table2":
        return list(paper()["table2"]["gcn"])
    return list(paper()[target[:4]]["datasets"])  # fig1a, fig1b and fig1c are all of fig1


@dataclass(frozen=True)
class Request:
    """The options of ``bvat reproduce``.

    Args:
        datasets: names or paths; None for those of the paper.
        methods: methods, or MODEL/METHOD; None for all.
        seeds: number of seeds per data set or ``DATASET:ROW``; the key ``*`` is for all others.
        overrides: settings that replace those of every preset.
        command: the command line, stored with every result.
    """

    datasets: Sequence[str] | None = None
    methods: Sequence[str] | None = None
    seeds: Mapping[str, int] = field(default_factory=lambda: {DEFAULT: 10})
    overrides: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""

    def __post_init__(self) -> None:
        for name in self.methods or ():
            Variant.parse(name)

    def datasets_of(self, target: str) -> list[str]:
        """Return the data sets of a table or figure: those requested that the paper shows there.

        If the paper shows none of them, all requested ones.
        """
        shown = paper_datasets(target)
        if self.datasets is None:
            return shown
        both = [name for name in self.datasets if name in shown]
        return list(self.datasets) if target == "table2" or not both else both

    def methods_of(self, target: Sequence[str]) -> list[str]:
        return [method for method in target if self.methods is None or method in self.methods]

    def rows_of(self, dataset: str) -> list[str]:
        if self.methods is not None:
            return in_order(Variant.parse(name).name for name in self.methods)
        fitting = [name for name in BEYOND if has_model_preset(dataset, Variant.parse(name).model)]
        return [*PUBLISHED, *[name for name in PLAIN_MODELS if name in MODELS], *METHODS_OF_GCN, *fitting]

    def seeds_of(self, dataset: str) -> range:
        return range(self.seeds.get(short_name(dataset), self.seeds[DEFAULT]))

    def seeds_for(self, dataset: str, row: str) -> range:
        """Return the seeds of a row of Table 2: only the first if all would give the same."""
        baseline = BASELINES.get(row)
        if baseline is not None and not baseline.random:
            return range(1)
        number = self.seeds.get(f"{short_name(dataset)}:{row}")
        return self.seeds_of(dataset) if number is None else range(number)

    def settings(self, dataset: str, method: str, **rest: Any) -> Settings:
        """Return the preset of a data set and a row, with the overrides and ``rest`` on top."""
        row = Variant.parse(method)
        return preset_among(preset_key(dataset), row.method, model=row.model, **{**self.overrides, **rest})


def in_order(rows: Iterable[str]) -> list[str]:
    """Return rows of Table 2, each once, in its order."""
    return sorted(dict.fromkeys(rows), key=lambda row: ROWS.index(row) if row in ROWS else len(ROWS))


def parse_seeds(text: str) -> dict[str, int]:
    """Parse ``20`` or ``20,nell=10,nell:gat=5``: a number for all, and others for data sets or their rows.

    ``cheap`` stands for all cells in which a run takes seconds, unless their data set has a number.
    """
    key = r"[^:=]+(:[^:=]+)?="
    found: dict[str, int] = {DEFAULT: 10}
    for part in text.split(","):
        if not re.fullmatch(rf"\s*(?!{CHEAP}:)({key})?\s*0*[1-9][0-9]{{0,3}}\s*", part):
            raise SettingsError(
                f"--seeds takes a number below 10,000 or a list such as 20,nell=10,nell:gat=5, not {text!r}"
            )
        name, _, number = part.rpartition("=")
        dataset, _, row = name.strip().partition(":")
        cell = f"{dataset}:{Variant.parse(row).name}" if row else dataset
        found[cell or DEFAULT] = int(number)
    cheap = found.pop(CHEAP, None)
    if cheap is not None:
        cells = {f"{name}:{row}": cheap for name in CHEAP_DATASETS if name not in found for row in CHEAP_ROWS}
        found = {**cells, **found}
    return found
