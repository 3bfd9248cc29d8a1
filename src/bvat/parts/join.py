"""From the processes that ``torchrun`` started to ranks with a part of the graph each."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bvat._version import __version__
from bvat.data.checksums import sha256
from bvat.engine.ranks import RankEngine, connect, connected
from bvat.errors import BvatError, DataError, SettingsError
from bvat.parts.folder import described, read_about, read_part
from bvat.parts.part_graph import PartGraph, part_graph

_MMAP_THRESHOLD = -3
"""M_MMAP_THRESHOLD of malloc.h."""
TIMEOUT = 600.0
"""Seconds after which a rank that does not answer ends training."""


def join(folder: Path, timeout: float = TIMEOUT, asked: Mapping[str, Any] | None = None) -> PartGraph:
    """Connect to the other ranks and return the part of this rank, whose engine they are.

    Ranks that see different graphs, cuts or settings would train on as if nothing were wrong, or break in the
    middle of an exchange: they compare what they see first, and all of them raise if something differs.

    Args:
        folder: what ``bvat partition`` wrote.
        timeout: seconds to wait for another rank.
        asked: plain values that must be the same on all ranks, such as the settings.

    Raises:
        SettingsError: there is not one process per part, or the ranks differ.
        DataError: the part of this rank or of another one cannot be read.
        TrainingError: the other ranks do not answer.
    """
    _give_memory_back()
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    torch.set_num_threads(1)
    connect(rank, size, timeout)
    atexit.register(_leave)
    mine = _Report({"bvat": __version__})
    try:
        about = read_about(folder)
        mine.seen |= {"graph": about["graph"], "number of parts": about["parts"]}
        mine.seen |= {"cut": _digest(about["files"]), "description of the graph": _digest(about)}
        mine.seen |= asked or {}
        if size != about["parts"]:
            raise SettingsError(
                f"{folder} has {about['parts']} parts, and {size} processes were started: use "
                f"torchrun --nproc-per-node {about['parts']} -m bvat train {folder}, or cut the graph again "
                f"with --parts {size}"
            )
        part, features, rest = read_part(folder, rank, about)
        mine.sends, mine.receives = part.send_counts.tolist(), part.receive_counts.tolist()
    except BvatError as error:
        mine.fault = error
    _compare(rank, _gathered(mine, size))
    own: dict[str, Any] = {name: rest[name] for name in ("labels", "train", "val", "test")}
    own |= {"whole_nodes": about["nodes"], "whole_edges": about["edges"]}
    own |= {"fingerprint": about["graph"], "folder": str(folder), **described(about)}
    return part_graph(RankEngine(rank, size, about["nodes"]), part, features, own)


def _digest(content: Any) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode())


@dataclass
class _Report:
    """What a rank tells the others before the first epoch.

    What must be the same on all ranks, why it cannot take part, and its number of rows for and from each.
    """

    seen: dict[str, Any]
    fault: BvatError | None = None
    sends: list[int] = field(default_factory=list)
    receives: list[int] = field(default_factory=list)


def _gathered(mine: _Report, size: int) -> list[_Report]:
    """Return the reports of all ranks."""
    if size == 1:
        return [mine]
    reports: list[Any] = [None] * size
    with connected():
        dist.all_gather_object(reports, mine)
    with suppress(RuntimeError, dist.DistError):  # a rank may end only when all have read its report
        dist.barrier()
    return reports


def _compare(rank: int, reports: Sequence[_Report]) -> None:
    """Raise on all ranks if they do not see the same, or if one of them cannot take part."""
    for what in dict.fromkeys(name for report in reports for name in report.seen):
        ranks: dict[str, list[int]] = {}
        for number, report in enumerate(reports):
            if what in report.seen:
                ranks.setdefault(str(report.seen[what]), []).append(number)
        if len(ranks) > 1:
            each = " and ".join(f"{value:.20} on rank {_some(numbers)}" for value, numbers in ranks.items())
            raise SettingsError(
                f"the ranks do not train the same: {what} is {each}; give all of them the same folder of "
                "parts, the same options and the same version of bvat"
            )
    if (own := reports[rank].fault) is not None:
        raise own
    for number, report in enumerate(reports):
        if report.fault is not None:
            raise DataError(f"rank {number} cannot take part: {report.fault}")
    for a, sender in enumerate(reports):
        for b, receiver in enumerate(reports):
            if sender.sends[b] != receiver.receives[a]:
                raise DataError(f"part {a} does not send what part {b} expects: run bvat partition again")


def _some(ranks: Sequence[int], most: int = 4) -> str:
    return ", ".join(map(str, ranks[:most])) + (" ..." if len(ranks) > most else "")


def _give_memory_back() -> None:
    """Let arrays go back to the system as soon as they are freed, where the C library can be told (glibc).

    It would keep those below 32 MB, between which gaps remain: twice the memory that a rank needs. Huge
    pages, which PyTorch asks for if this variable is set in time, make new arrays cheap.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 4 << 20)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
