"""The published numbers of the paper, read from ``published.toml``."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from bvat.training.settings import short_name
from bvat.tuning.variants import Variant

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


def source(row: str) -> dict[str, str]:
    """Return where the published numbers of a row come from, and how they were measured; empty for ours."""
    return dict(paper()["source"].get(row, {}))


def title(row: str) -> str:
    """Return the title of a row of Table 2: a method on a GCN, or MODEL/METHOD."""
    return Variant.parse(row).title


def short(row: str) -> str:
    return Variant.parse(row).short


def named(dataset: str) -> str:
    name = short_name(dataset)
    return NAMES.get(name, name)


def datasets(target: str) -> list[str]:
    if target == "table2":
        return list(paper()["table2"]["gcn"])
    return list(paper()[target[:4]]["datasets"])  # fig1a, fig1b and fig1c are all of fig1
