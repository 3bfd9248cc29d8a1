"""Audits kept batch by batch, so that one that was interrupted continues."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bvat.audit.audit import audit_batches
from bvat.audit.result import MEASURED, Audit
from bvat.data.checksums import seal_line, verify
from bvat.data.files import append
from bvat.errors import SettingsError
from bvat.graph import Graph


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
        self, number: int, model: Any, graph: Graph, *, epsilon: float, nodes: Tensor, certify: bool = False
    ) -> Iterator[Audit]:
        """Yield the batches of a model: those that are kept, then those that are measured now."""
        done = 0
        for entry in self._batches:
            if entry["model"] == number:
                yield (part := _read(entry))
                done += part.nodes.numel()
        for part in audit_batches(model, graph, epsilon=epsilon, nodes=nodes[done:], certify=certify):
            if self.path is not None:
                columns = {name: getattr(part, name).tolist() for name in MEASURED}
                dtype = str(part.lds.dtype).removeprefix("torch.")
                append(self.path, seal_line({"model": number, "epsilon": epsilon, "dtype": dtype, **columns}))
            yield part


def _read(entry: Mapping[str, Any]) -> Audit:
    def column(name: str) -> Tensor:
        if name.startswith("certified"):
            return torch.tensor(entry[name], dtype=torch.float64)
        exact = name in ("confidence", "lds", "relative") or name.startswith("smallest")
        return torch.tensor(entry[name], dtype=getattr(torch, entry["dtype"]) if exact else torch.int64)

    return Audit(entry["epsilon"], *map(column, MEASURED))
