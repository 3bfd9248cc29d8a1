"""From the processes that ``torchrun`` started to ranks with a part of the graph each."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bvat.distributed.folder import read_about, read_part
from bvat.distributed.part_graph import PartGraph, part_graph
from bvat.distributed.ranks import Ranks, connect
from bvat.distributed.world import enter
from bvat.errors import SettingsError

_MMAP_THRESHOLD = -3
"""M_MMAP_THRESHOLD of malloc.h."""
TIMEOUT = 600.0
"""Seconds after which a rank that does not answer ends training."""


def started_by_torchrun() -> tuple[int, int]:
    """Return the rank of this process and the number of processes; 0 and 1 without ``torchrun``."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def restarted() -> bool:
    """Return whether ``torchrun --max-restarts`` has started this process again after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def join(folder: Path, timeout: float = TIMEOUT) -> PartGraph:
    """Connect to the other ranks, make them the world of this process, and return the part of this rank.

    Args:
        folder: what ``bvat partition`` wrote.
        timeout: seconds to wait for another rank.

    Raises:
        SettingsError: there is not one process per part.
        DataError: the part cannot be read.
        TrainingError: the other ranks do not answer.
    """
    _give_memory_back()
    about = read_about(folder)
    rank, size = started_by_torchrun()
    parts = about["parts"]
    if size != parts:
        raise SettingsError(
            f"{folder} has {parts} parts, and {size} processes were started: use torchrun --nproc-per-node "
            f"{parts} -m bvat train {folder}, or cut the graph again with --parts {size}"
        )
    part, features, rest = read_part(folder, rank, about)
    torch.set_num_threads(1)
    connect(rank, size, timeout)
    atexit.register(_leave)
    world = Ranks(rank, size, about["nodes"])
    enter(world)
    own: dict[str, Any] = {name: rest[name] for name in ("labels", "train", "val", "test")}
    named = {"class_names": tuple(about["classes"]), "notes": tuple(about["notes"])}
    sizes = {"whole_nodes": about["nodes"], "whole_edges": about["edges"]}
    rest_of_graph = {name: about[name] for name in ("name", "validation", "repairs", "recipe")}
    place = {"fingerprint": about["graph"], "folder": str(folder)}
    return part_graph(world, part, features, {**own, **named, **sizes, **rest_of_graph, **place})


def _give_memory_back() -> None:
    """Let arrays go back to the system as soon as they are freed, where the C library can be told (glibc).

    It would keep those below 32 MB, between which gaps remain: twice the memory that a rank needs. Huge
    pages, which PyTorch asks for if this variable is set in time, make new arrays cheap.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 4 << 20)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
