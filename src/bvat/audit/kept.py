"""Audits in files: as CSV, and batch by batch, so that an audit that was interrupted continues."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bvat.audit.audit import MEASURED, Audit, audit_batches
from bvat.data.checksums import seal_line, verify
from bvat.data.files import append, csv_text
from bvat.errors import SettingsError
from bvat.graph import UNKNOWN, Graph
from bvat.inference.tables import no_formula, node_id, short_number


class KeptAudits:
    """Batches of the audits of several models, one JSON object with its checksum per line.

    The first line has what the numbers depend on. A process that is killed loses at most the batch that it
    was writing: an incomplete line, and what follows a damaged one, is removed and measured again.

    Args:
        path: the file; None to keep nothing.
        about: what the numbers depend on, by the name that the user knows it by.

    Raises:
        SettingsError: the file is something else, or of an audit in which something of ``about`` differs.
    """

    def __init__(self, path: Path | None, about: Mapping[str, Any]) -> None:
        self.path, self._batches = path, list[dict[str, Any]]()
        content = path.read_bytes() if path is not None and path.exists() else b""
        lines = list(takewhile(verify, content.splitlines(keepends=True)))
        if content and not lines:
            raise SettingsError(f"{path} does not hold an unfinished audit: remove it, or use another --out")
        if path is None:
            return
        if not lines:
            append(path, seal_line(about))
            return
        before, *self._batches = map(json.loads, lines)
        different = [name for name, value in about.items() if before.get(name) != value]
        if different:
            raise SettingsError(
                f"{path} holds an unfinished audit with another {different[0]}: finish that one, remove the "
                "file, or use another --out"
            )
        with path.open("r+b") as file:
            file.truncate(sum(map(len, lines)))

    def audit(
        self, number: int, model: Any, graph: Graph, *, epsilon: float, nodes: Tensor
    ) -> Iterator[Audit]:
        """Yield the batches of a model: those that are kept, then those that are measured now."""
        done = 0
        for entry in self._batches:
            if entry["model"] == number:
                yield (part := _read(entry))
                done += part.nodes.numel()
        for part in audit_batches(model, graph, epsilon=epsilon, nodes=nodes[done:]):
            if self.path is not None:
                columns = {name: getattr(part, name).tolist() for name in MEASURED}
                dtype = str(part.lds.dtype).removeprefix("torch.")
                append(self.path, seal_line({"model": number, "epsilon": epsilon, "dtype": dtype, **columns}))
            yield part


def _read(entry: Mapping[str, Any]) -> Audit:
    def column(name: str) -> Tensor:
        exact = name in ("confidence", "lds", "smallest", "relative")
        return torch.tensor(entry[name], dtype=getattr(torch, entry["dtype"]) if exact else torch.int64)

    return Audit(entry["epsilon"], *map(column, MEASURED))


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
