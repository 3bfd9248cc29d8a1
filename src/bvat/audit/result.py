"""``Audit``: what an audit found, in numbers, states and quantiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bvat.audit.certify import BUDGETS, Budget
from bvat.graph.html import html_table
from bvat.training.plottable import Plottable

MEASURED = ("nodes", "predicted", "confidence", "field_size", "lds", "smallest", "relative", "becomes",
            "smallest_rows", "smallest_node", "certified", "certified_rows", "certified_node")  # fmt: skip
"""The tensors of an :class:`Audit`."""


@dataclass(frozen=True)
class Audit(Plottable):
    """What :func:`audit` found, one entry for each of n nodes.

    Shapes: all (n). ``lds`` is at least 0; ``smallest`` is the Frobenius norm of the smallest perturbation
    found over the receptive field, in the units of the features, infinite where none was found; ``relative``
    is the same divided by the norm of the features in that field; ``becomes`` is the class that the
    prediction changes to, -1 where none was found. ``certified``, float64, is a norm below which no
    perturbation changes the class, 0 unless a certificate was asked for. ``smallest_rows``,
    ``certified_rows``, ``smallest_node`` and ``certified_node`` are the same for the other budgets of
    :func:`bvat.certify`; without a certificate only what ``smallest`` implies for them is known.
    """

    epsilon: float
    nodes: Tensor
    predicted: Tensor
    confidence: Tensor
    field_size: Tensor
    lds: Tensor
    smallest: Tensor
    relative: Tensor
    becomes: Tensor
    smallest_rows: Tensor
    smallest_node: Tensor
    certified: Tensor
    certified_rows: Tensor
    certified_node: Tensor

    @classmethod
    def joined(cls, parts: Sequence[Audit]) -> Audit:
        return cls(parts[0].epsilon, *(torch.cat([getattr(p, name) for p in parts]) for name in MEASURED))

    def of(self, nodes: Tensor) -> Audit:
        """Return the entries of some of the nodes, int64, in their order."""
        order = self.nodes.argsort()
        rows = order[torch.searchsorted(self.nodes[order], nodes)]
        return Audit(self.epsilon, *(getattr(self, name)[rows] for name in MEASURED))

    def norms(self, budget: Budget) -> tuple[Tensor, Tensor]:
        """Return the certified norms and the smallest found of a budget, (n) each."""
        ending = "" if budget == "graph" else f"_{budget}"
        return getattr(self, f"certified{ending}"), getattr(self, f"smallest{ending}")

    def states(self, size: float, budget: Budget = "graph") -> dict[str, Tensor]:
        """Return which nodes are proved, broken or between at a norm of the perturbation, bool (n) each.

        *proved*: no perturbation of this norm changes the class; *broken*: one was found that does, and a
        forward pass verified it; *between*: neither.
        """
        certified, smallest = self.norms(budget)
        proved, broken = certified > size, smallest <= size
        return {"proved": proved, "broken": broken, "between": ~(proved | broken)}

    def summary(self) -> dict[str, Any]:
        """Return quantiles over the nodes as plain numbers; None where a quantile is not finite."""

        def quantile(values: Tensor, share: float) -> float | None:
            found = float(np.quantile(values.double().numpy(), share, method="lower"))
            return found if np.isfinite(found) else None

        def medians(budget: Budget) -> dict[str, float | None]:
            certified, smallest = (quantile(norms, 0.5) for norms in self.norms(budget))
            return {"median_certified": certified, "median_smallest": smallest}

        return {
            "nodes": self.nodes.numel(),
            "epsilon": self.epsilon,
            "median_lds": quantile(self.lds, 0.5),
            "mean_lds": float(self.lds.double().mean()),
            "median_smallest": quantile(self.smallest, 0.5),
            "median_relative": quantile(self.relative, 0.5),
            "tenth_smallest": quantile(self.smallest, 0.1),
            "not_found": int((~torch.isfinite(self.smallest)).sum()),
            "budgets": {budget: medians(budget) for budget in BUDGETS if bool(self.certified.any())},
        }

    def _repr_html_(self) -> str:
        found = self.summary()
        numbers = {name: value for name, value in found.items() if name != "budgets"}
        shown = {name: "none found" if value is None else f"{value:.4g}" for name, value in numbers.items()}
        certified = {f"certified to found, budget {name}": interval(found, name) for name in found["budgets"]}
        return html_table(
            f"Audit of {found['nodes']:,} nodes, epsilon {self.epsilon:g}",
            {
                "median LDS (lower is better)": shown["median_lds"],
                "median smallest change of class": shown["median_smallest"],
                "relative to the features around": shown["median_relative"],
                "the most fragile tenth: at most": shown["tenth_smallest"],
                "nodes without a change of class": f"{found['not_found']:,}",
            }
            | certified,
        )


def interval(summary: Mapping[str, Any], budget: str) -> str:
    """Return the medians of certified norms and of the smallest found; that of the true ones lies between."""
    medians = summary["budgets"].get(budget)
    if medians is None:
        return "-"
    low, high = (math.inf if each is None else each for each in medians.values())
    return f"{low:.3g} to {high:.3g}" if math.isfinite(high) else f"above {low:.3g}"
