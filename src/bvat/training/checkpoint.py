"""Checkpoints: the whole state of training in one safetensors file, so that it can resume bit for bit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from bvat.data.checksums import CHECKSUM, DAMAGED, UNSEALED, seal, verify
from bvat.data.files import read_regular, write_atomic
from bvat.distributed.world import current
from bvat.errors import TrainingError
from bvat.training.callbacks import Callback
from bvat.training.phases import first_phase
from bvat.training.provenance import digest, graph_fingerprint
from bvat.training.state import TrainState

CHECKPOINT_FORMAT = "bvat checkpoint 5"


class Checkpoint(Callback):
    """Write a checkpoint every ``every`` epochs and when training is interrupted.

    It is written at the end of an epoch only, after all other callbacks have seen that epoch: an interrupt
    or a crash in the middle of an epoch leaves the previous checkpoint as it is.

    Args:
        path: the file.
        callbacks: those whose state is part of the checkpoint.
        every: number of epochs between two checkpoints.
    """

    def __init__(self, path: Path, callbacks: Sequence[Callback] = (), every: int = 50) -> None:
        self.path, self.callbacks, self.every = path, tuple(callbacks), every

    def on_start(self, state: TrainState) -> None:
        """Create the folder, now and not later: if it is removed during training, that is an error."""
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
        """Write the checkpoint if it is due."""
        if state.epoch % self.every == 0 or state.interrupted:
            self.save(state)

    def identity(self, state: TrainState) -> dict[str, str]:
        """Return what must agree for a checkpoint to be resumed from."""
        return {
            "settings": json.dumps(state.settings.identity(), sort_keys=True),
            "seed": str(state.seed),
            "graph": graph_fingerprint(state.graph),
        }

    def save(self, state: TrainState) -> None:
        """Write everything that training needs to continue."""
        tensors: dict[str, Tensor] = {"generator": state.generator.get_state()}
        parts = {"model": state.model, "optimizer": state.optimizer, "regulariser": state.regulariser}
        parts["average"] = state.average
        own = current().own_file(self.path, state.epoch)
        if own is not None:  # what a search keeps has a row per node
            parts["regulariser"] = None
            kept = {} if state.regulariser is None else state.regulariser.state_dict()
            write_safetensors(own, kept, {"epoch": str(state.epoch)}, new_folders=False)
            current().barrier()  # the checkpoint counts from when the leading rank has written it
        for prefix, part in parts.items():
            if part is not None:
                tensors |= {f"{prefix}.{name}": tensor for name, tensor in part.state_dict().items()}
        for callback in self.callbacks:
            kept = {f"callback.{callback.name}/{k}": v for k, v in callback.state_dict().items()}
            if kept.keys() & tensors.keys():
                raise TrainingError(f"two callbacks are named {callback.name!r}: give one a different name")
            tensors |= kept
        columns = list(state.metrics[0]) if state.metrics else []
        tensors["metrics"] = torch.tensor(
            [[row[name] for name in columns] for row in state.metrics], dtype=torch.float64
        )
        about = {
            "format": CHECKPOINT_FORMAT,
            **self.identity(state),
            "columns": json.dumps(columns),
            "epoch": str(state.epoch),
            "space": state.space,
            "stop": json.dumps(state.stop),
            "events": json.dumps(state.events),
        }
        if current().leads:
            write_safetensors(self.path, tensors, about, new_folders=False)
        if own is not None:
            current().barrier()
            for old in own.parent.glob(own.name.replace(f"-epoch-{state.epoch}.", "-epoch-*.")):
                if old != own:
                    old.unlink(missing_ok=True)

    def load(self, state: TrainState) -> None:
        """Restore ``state`` and the callbacks; refuse the checkpoint of a different run."""
        try:
            about, tensors = read_safetensors(self.path)
        except (SafetensorError, OSError, ValueError) as error:
            raise TrainingError(
                f"{self.path} cannot be read ({error}): delete it and start this seed again"
            ) from error
        if about.get("format") != CHECKPOINT_FORMAT or CHECKSUM not in about:
            raise TrainingError(
                f"{self.path} is not a checkpoint of this version of bvat: delete it and start again"
            )
        for what, value in self.identity(state).items():
            if about.get(what) != value:
                other = "different settings" if what == "settings" else f"a different {what}"
                raise TrainingError(
                    f"{self.path} belongs to a run with {other}: delete it, or use another folder"
                )

        def part(prefix: str) -> dict[str, Tensor]:
            found = {name: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
            return {name[len(prefix) :]: tensor.to(state.graph.device) for name, tensor in found.items()}

        state.generator.set_state(tensors["generator"])
        state.model.load_state_dict(part("model."))
        state.optimizer.load_state_dict(part("optimizer."))
        if state.average is not None:
            state.average.load_state_dict(part("average."))
        own = current().own_file(self.path, int(about["epoch"]))
        if state.regulariser is not None:
            state.regulariser.load_state_dict(part("regulariser.") if own is None else _read_own(own))
        for callback in self.callbacks:
            if kept := part(f"callback.{callback.name}/"):
                callback.load_state_dict(kept)
        columns = json.loads(about["columns"])
        state.metrics = [dict(zip(columns, row, strict=True)) for row in tensors["metrics"].tolist()]
        state.epoch, state.space, state.stop = int(about["epoch"]), about["space"], json.loads(about["stop"])
        state.events = json.loads(about["events"])


def _read_own(path: Path) -> dict[str, Tensor]:
    """Return what a rank has written of a checkpoint."""
    try:
        return read_safetensors(path)[1]
    except (SafetensorError, OSError, ValueError) as error:
        raise TrainingError(f"{path} cannot be read ({error}): delete the folder and start again") from error


class PretrainedState(Checkpoint):
    """The end of the first of two phases, kept in a folder for all methods that share that phase.

    Methods on the same graph with the same seed, model and optimiser go through the same first phase, bit for
    bit; a comparison of many methods trains it once.
    """

    def __init__(self, folder: Path, callbacks: Sequence[Callback], state: TrainState) -> None:
        super().__init__(folder / f"{digest(self.identity(state))}.safetensors", callbacks)
        self.on_start(state)

    def identity(self, state: TrainState) -> dict[str, str]:
        """Return what the first phase depends on."""
        about = {"seed": str(state.seed), "graph": graph_fingerprint(state.graph)}
        return {**about, "settings": json.dumps(first_phase(state.settings), sort_keys=True)}

    def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
        """Write nothing: it is saved when the first phase ends."""

    def load_if_there(self, state: TrainState) -> None:
        """Restore the end of the first phase; a file that cannot be used counts as missing."""
        if self.path.exists():
            with suppress(TrainingError):
                self.load(state)


def write_safetensors(
    path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str], *, new_folders: bool = True
) -> None:
    """Write tensors and metadata with a checksum, atomically."""
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomic(path, seal(save(content, {**about, CHECKSUM: UNSEALED})), new_folders=new_folders)


def read_safetensors(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata and the tensors of a file.

    Raises:
        OSError: the file cannot be read.
        ValueError, SafetensorError: it is damaged. A file without a checksum is not known to be intact.
        DataError: it is not a regular file.
    """
    content = read_regular(path)
    correct = verify(content)
    if correct is False:
        raise ValueError(DAMAGED)
    try:
        tensors = load(content)
    except (KeyError, RuntimeError) as error:  # an unknown precision, a shape that is too large
        raise ValueError(f"it does not contain tensors: {error}") from None
    length = int.from_bytes(content[:8], "little")
    about = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    if correct is None and CHECKSUM in about:
        raise ValueError(DAMAGED)
    return about, tensors
