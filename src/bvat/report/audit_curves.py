"""The distribution of what an audit measures over the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from bvat.audit.audit import Audit
from bvat.report.charts import Drawing, Line, line_chart


def distribution_charts(audits: Sequence[tuple[str, Audit]]) -> list[Drawing]:
    """Draw the share of nodes whose class changes within a norm, and with at most an LDS, by model."""
    epsilon = f"{audits[0][1].epsilon:g}"
    flips = [_cumulative(name, audit.smallest, k) for k, (name, audit) in enumerate(audits)]
    spread = [_cumulative(name, audit.lds, k) for k, (name, audit) in enumerate(audits)]
    return [
        line_chart(_cut(flips), "norm of the change, in units of the features", "% of nodes", floor=0,
                   title="Nodes whose class changes within this norm"),
        line_chart(_cut(spread), "LDS (KL divergence)", "% of nodes", floor=0,
                   title=f"Nodes with at most this LDS, ε = {epsilon}"),
    ]  # fmt: skip


def _cumulative(label: str, values: Tensor, number: int) -> Line:
    """Return the percentage of nodes up to each value, at 101 quantiles."""
    ordered = np.sort(values.double().numpy())
    places = np.unique(np.linspace(0, ordered.size - 1, 101).round().astype(int))
    share = 100 * (places + 1) / ordered.size
    keep = np.isfinite(ordered[places])
    x, y = ordered[places][keep], share[keep]
    return Line(label, [0.0, *x.tolist()], [0.0, *y.tolist()], colour=number, dashed=number > 0)


def _cut(lines: Sequence[Line]) -> list[Line]:
    """Leave out the last few nodes, whose values would compress the rest."""
    ends = [x for line in lines for x, y in zip(line.x, line.y, strict=True) if y <= 98] or [0.0]
    cut = []
    for line in lines:
        kept = [(x, y) for x, y in zip(line.x, line.y, strict=True) if x <= max(ends)]
        cut.append(replace(line, x=[x for x, _ in kept], y=[y for _, y in kept]))
    return cut
