"""Runs on a folder of parts, one process per part."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.models.table import MODELS
from bvat.parts.batches import open_batches
from bvat.parts.folder import is_partition, read_about, whole_graph
from bvat.parts.join import join
from bvat.training.provenance import code
from bvat.training.settings import Settings, preset_key

MOST_NODES = 200_000
"""Nodes up to which the parts are joined for the page of a run."""


def name_of_parts(dataset: str, method: str | None) -> str:
    """Return the name of the graph in a folder of parts; of anything else, what was given."""
    if not is_partition(dataset):
        return dataset
    name = str(read_about(Path(dataset))["name"])
    if method == "auto" or (method is None and not preset_key(name)):
        raise SettingsError("--method auto does not run over several ranks: name a method")
    return name if preset_key(name) else dataset


def join_parts(
    dataset: str, settings: Settings, timeout: float, batch: int | None, **same: Any
) -> Graph | None:
    """Return the part of this rank, and make all ranks one world; None unless ``dataset`` are parts.

    Args:
        dataset: a folder of parts, or something else.
        settings: of the run.
        timeout: seconds to wait for another rank.
        batch: train in one process on so many parts at a time.
        same: what all ranks must agree on, besides the settings.
    """
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if not is_partition(dataset):
        if batch is not None:
            raise SettingsError("--batch-parts needs a folder of parts: write one with bvat partition")
        if processes > 1:
            raise SettingsError(
                f"torchrun started {processes} processes, and {dataset} is not a folder of parts: write one "
                f"with bvat partition --parts {processes}, or start bvat train without torchrun"
            )
        return None
    if batch is not None:
        if processes > 1:
            raise SettingsError("--batch-parts runs in one process: start it without torchrun")
        return open_batches(Path(dataset), batch)
    if not settings.model_row.distributed:
        able = ", ".join(model.name for model in MODELS.values() if model.distributed)
        raise SettingsError(f"model {settings.model} does not run over several ranks: use one of {able}")
    if settings.model == "random-propagation" and settings.batch_norm:
        raise SettingsError("batch_norm does not run over several ranks: leave it out")
    return join(Path(dataset), timeout, {**settings.as_dict(), **same, "source of bvat": code()["source"]})


def resumes(asked: bool, out: Path | None) -> bool:
    """Return whether to resume: if asked to, or if torchrun has started the process again after a failure."""
    again = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    return asked or (again and (out is None or (out / "settings.json").is_file()))


def whole(graph: Any) -> Graph:
    """Return the whole graph for the page of a run; the leading rank alone puts parts together again."""
    if not (folder := getattr(graph, "folder", "")):
        return graph  # type: ignore[no-any-return]
    if graph.num_nodes > MOST_NODES:
        raise SettingsError(f"the graph has more than {MOST_NODES:,} nodes")
    return whole_graph(Path(folder))
