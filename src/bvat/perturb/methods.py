"""The table of methods: names, titles and colours, in the order of tables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """A training method: what it is called, its colour in charts, and how long its epochs take."""

    name: str
    title: str
    short: str
    colour: int
    effort: float


METHODS = {
    method.name: method
    for method in (
        Method("gcn", "GCN", "GCN", 7, 1.0),
        Method("consistency", "GCN + consistency", "consistency", 3, 1.5),
        Method("random", "GCN + random", "random", 4, 1.6),
        Method("vat", "GCN + VAT", "VAT", 0, 2.3),
        Method("sbvat", "GCN + S-BVAT", "S-BVAT", 1, 1.5),
        Method("obvat", "GCN + O-BVAT", "O-BVAT", 2, 4.0),
    )
}
