"""Memory, bytes and seconds of an epoch over many ranks, by a formula.

Two layers of a GCN, H hidden units, C classes; n nodes, m entries of Â (2 E / P + n) and s rows to send per
rank; k passes through both layers in an epoch: 3 for GCN, 7 for VAT, 5 + 2 T for O-BVAT with T steps.

sent bytes     4 s (H + C) k
memory bytes   8 m (Â) + 8 x n (x words per node) + 4 n b (H + C), b measured
seconds        k m a, with a measured in nanoseconds per entry, and sent bytes / bandwidth
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bvat.engine.matrix import padded_width

PASSES = {"gcn": 3, "vat": 7, "obvat": 5}
"""Passes through Â of both layers in an epoch: forward, backward and evaluation; O-BVAT adds two per step."""


def passes_per_epoch(method: str, steps: int) -> int:
    """Return k."""
    return PASSES[method] + (2 * steps if method == "obvat" else 0)


@dataclass(frozen=True)
class Plan:
    """A graph, how it is cut, and what is trained.

    Args:
        nodes, edges, words: of the whole graph; words are the entries of X per node.
        ranks: P.
        halo: rows to send per own node; METIS on a graph with communities gives 0.1 to 0.3.
        hidden, classes: H and C.
        passes: k.
        arrays: b, rows of both layers per node that are kept at once, measured.
        entry_ns: processor time per entry of Â and pass through both layers, measured.
    """

    nodes: float
    edges: float
    ranks: int
    halo: float
    words: float = 8
    hidden: int = 16
    classes: int = 8
    passes: int = 25
    arrays: float = 0.0
    entry_ns: float = 0.0

    @property
    def own(self) -> float:
        """Nodes of a rank."""
        return self.nodes / self.ranks

    @property
    def entries(self) -> float:
        """Entries of Â of a rank."""
        return 2 * self.edges / self.ranks + self.own

    @property
    def _width(self) -> int:
        return padded_width(self.hidden) + padded_width(self.classes)

    @property
    def sent_bytes(self) -> float:
        """Bytes that a rank sends in an epoch."""
        return 4 * self.halo * self.own * self._width * self.passes

    @property
    def memory_bytes(self) -> float:
        """Peak memory of a rank above one with a tiny graph."""
        graph = 8 * self.entries + 8 * self.words * self.own
        return graph + 4 * self.own * self.arrays * self._width

    def seconds(self, gbit: float) -> float:
        """Return the seconds of an epoch if nothing overlaps; gbit is the bandwidth of a rank."""
        return 1e-9 * self.passes * self.entries * self.entry_ns + 8e-9 * self.sent_bytes / gbit


def fitted(
    method: str, one: Mapping[str, Any], *, nodes: int, edges: int, ranks: int, halo: float, steps: int = 10
) -> Plan:
    """Return a plan whose measured numbers come from one rank of ``benchmarks/ranks.py speed``."""
    passes = passes_per_epoch(method, steps)
    alone = Plan(nodes=nodes, edges=edges, ranks=1, halo=0, passes=passes)
    rows = max(one["memory_mb"]) * 2**20 - alone.memory_bytes
    return replace(
        alone,
        ranks=ranks,
        halo=halo,
        arrays=rows / (4 * nodes * alone._width),
        entry_ns=1e9 * one["processor_seconds"][0] / (passes * alone.entries),
    )
