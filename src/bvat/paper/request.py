"""What to reproduce: data sets, methods, seeds, and settings that apply to everything."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bvat.errors import SettingsError
from bvat.paper.published import datasets as paper_datasets
from bvat.perturb.methods import METHODS
from bvat.training.settings import Settings, preset, preset_key, short_name

DEFAULT = "*"
"""The key for all other data sets in a mapping of seeds."""


@dataclass(frozen=True)
class Request:
    """The options of ``bvat reproduce``.

    Args:
        datasets: names or paths; None for those of the paper.
        methods: None for all.
        seeds: number of seeds per data set; the key ``*`` is for all others.
        overrides: settings that replace those of every preset.
        command: the command line, stored with every result.
    """

    datasets: Sequence[str] | None = None
    methods: Sequence[str] | None = None
    seeds: Mapping[str, int] = field(default_factory=lambda: {DEFAULT: 10})
    overrides: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""

    def __post_init__(self) -> None:
        unknown = set(self.methods or ()) - set(METHODS)
        if unknown:
            raise SettingsError(f"there is no method {min(unknown)!r}: use {', '.join(METHODS)}")

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
        """Return the requested methods of a table or figure, in its order."""
        return [method for method in target if self.methods is None or method in self.methods]

    def seeds_of(self, dataset: str) -> range:
        """Return the seeds of a data set."""
        return range(self.seeds.get(short_name(dataset), self.seeds[DEFAULT]))

    def settings(self, dataset: str, method: str, **rest: Any) -> Settings:
        """Return the preset of a data set and method, with the overrides and ``rest`` on top."""
        return preset(preset_key(dataset), method, **{**self.overrides, **rest})


def parse_seeds(text: str) -> dict[str, int]:
    """Parse ``20`` or ``20,nell=10``: a number for all data sets, and different ones for some."""
    found: dict[str, int] = {DEFAULT: 10}
    for part in text.split(","):
        name, _, number = part.rpartition("=")
        if not re.fullmatch(r"\s*0*[1-9][0-9]{0,3}\s*", number):
            raise SettingsError(
                f"--seeds takes a number below 10,000 or a list such as 20,nell=10, not {text!r}"
            )
        found[name.strip() or DEFAULT] = int(number)
    return found
