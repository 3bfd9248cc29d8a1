"""Audits as CSV."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bvat.audit.audit import Audit
from bvat.data.files import csv_text
from bvat.graph import UNKNOWN, Graph
from bvat.inference.tables import no_formula, node_id, short_number

AUDIT_COLUMNS = ("id", "predicted", "label", "confidence", "field_size", "lds", "smallest",
                 "smallest_relative", "becomes")  # fmt: skip


def audit_csv(
    graph: Graph, class_names: Sequence[str], labels: Tensor, found: Audit, *, safe: bool = False
) -> str:
    """Return the columns of ``AUDIT_COLUMNS``, one line per node; cells are empty where nothing was found.

    With ``safe``, names do not look like formulas to a spreadsheet.

    Shapes: labels int64 (N), indices into ``class_names``, -1 for unknown.
    """
    shield = no_formula if safe else str

    def name(k: int) -> str:
        return "" if k == UNKNOWN else shield(class_names[k])

    columns = (
        [shield(node_id(graph, node)) for node in found.nodes.tolist()],
        [name(k) for k in found.predicted.tolist()],
        [name(k) for k in labels.cpu()[found.nodes].tolist()],
        [short_number(p) for p in found.confidence.tolist()],
        found.field_size.tolist(),
        [short_number(value) for value in found.lds.tolist()],
        [short_number(length) for length in found.smallest.tolist()],
        [short_number(share) for share in found.relative.tolist()],
        [name(k) for k in found.becomes.tolist()],
    )
    return csv_text(AUDIT_COLUMNS, zip(*columns, strict=True))
