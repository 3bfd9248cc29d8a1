"""Checkpoints: the whole state of a run in one safetensors file, so that it can go on bit for bit."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from bvat.data.files import write_atomic
from bvat.errors import TrainingError
from bvat.graph import Graph
from bvat.training.settings import Settings

if TYPE_CHECKING:
    from bvat.training.loop import TrainState

FORMAT = "bvat checkpoint 2"


def graph_fingerprint(graph: Graph) -> str:
    """Return a digest of features, edges, labels and splits."""
    digest = hashlib.sha256()
    parts = [graph.adjacency.crow, graph.adjacency.col, graph.adjacency.values, graph.labels]
    parts += [graph.train, graph.val, graph.test]
    parts += graph.features.tensors()
    for part in parts:
        digest.update(str(tuple(part.shape)).encode())
        digest.update(part.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()


def save_checkpoint(path: Path, state: TrainState, graph: Graph, settings: Settings, seed: int) -> None:
    """Write everything that training needs to go on."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in state.model.state_dict().items():
        tensors[f"model.{name}"] = tensor
    for name, tensor in state.best_weights.items():
        tensors[f"best.{name}"] = tensor
    for name, tensor in state.optimizer.state_dict().items():
        tensors[f"optimizer.{name}"] = tensor
    if state.regulariser is not None:
        for name, tensor in state.regulariser.state_dict().items():
            tensors[f"regulariser.{name}"] = tensor
    tensors["generator"] = state.generator.get_state()
    columns = list(state.metrics[0]) if state.metrics else []
    tensors["metrics"] = torch.tensor(
        [[row[name] for name in columns] for row in state.metrics], dtype=torch.float64
    )
    about = {
        "format": FORMAT,
        "settings": json.dumps(settings.as_dict(), sort_keys=True),
        "seed": str(seed),
        "graph": graph_fingerprint(graph),
        "columns": json.dumps(columns),
        "epoch": str(state.epoch),
        "best_epoch": str(state.best_epoch),
        "space": state.space,
    }
    write_atomic(path, save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, about))


def load_checkpoint(path: Path, state: TrainState, graph: Graph, settings: Settings, seed: int) -> None:
    """Put a checkpoint's content into ``state``; refuse one of another run."""
    try:
        with safe_open(path, framework="pt") as file:
            about: dict[str, str] = file.metadata() or {}
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise TrainingError(
            f"{path} cannot be read ({error}): delete it and start this seed again"
        ) from error
    if about.get("format") != FORMAT:
        raise TrainingError(f"{path} is not a checkpoint of this version of bvat: delete it and start again")
    ours = {
        "settings": json.dumps(settings.as_dict(), sort_keys=True),
        "seed": str(seed),
        "graph": graph_fingerprint(graph),
    }
    for what, value in ours.items():
        if about[what] != value:
            raise TrainingError(
                f"{path} belongs to a run with another {what}: use another folder, or delete it"
            )

    def part(prefix: str) -> dict[str, Tensor]:
        return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}

    state.model.load_state_dict(part("model."))
    device = graph.device
    state.best_weights = {name: tensor.to(device) for name, tensor in part("best.").items()}
    state.optimizer.load_state_dict(part("optimizer."))
    if state.regulariser is not None:
        moved = {name: tensor.to(device) for name, tensor in part("regulariser.").items()}
        state.regulariser.load_state_dict(moved)
    state.generator.set_state(tensors["generator"])
    columns = json.loads(about["columns"])
    state.metrics = [dict(zip(columns, row, strict=True)) for row in tensors["metrics"].tolist()]
    state.epoch, state.best_epoch = int(about["epoch"]), int(about["best_epoch"])
    state.space = about["space"]
