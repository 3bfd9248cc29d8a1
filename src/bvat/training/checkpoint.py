"""Checkpoints: the whole state of training in one safetensors file, so that it can resume bit for bit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from bvat.data.checksums import CHECKSUM
from bvat.data.tensors import read_safetensors, write_safetensors
from bvat.errors import TrainingError
from bvat.training.callbacks import Callback
from bvat.training.provenance import digest, graph_fingerprint
from bvat.training.state import TrainState, check_fits
from bvat.training.trained import METRICS

CHECKPOINT_FORMAT = "bvat checkpoint 5"
_PARTS, _SEARCH = ("model", "optimizer", "method", "average"), "method."
"""What has a state: attributes of the state of training; and the prefix of what a search keeps."""
_UNFIT = (LookupError, TypeError, ValueError, RuntimeError, OverflowError, AttributeError)
"""What the content of somebody else's file can raise."""


class Checkpoint(Callback):
    """Write a checkpoint every ``every`` epochs and when training is interrupted.

    It is written at the end of an epoch only, after all other callbacks have seen that epoch: an interrupt
    or a crash in the middle of an epoch leaves the previous checkpoint as it is.
    """

    def __init__(self, path: Path, callbacks: Sequence[Callback] = (), every: int = 50) -> None:
        self.path, self.callbacks, self.every = path, tuple(callbacks), every

    def on_start(self, state: TrainState) -> None:
        """Create the folder in one that exists, now and not later: if either is removed, that is an error."""
        self.path.parent.mkdir(exist_ok=True)

    def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
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
        about, tensors = self._content(state)
        own = state.graph.engine.own_file(self.path, state.epoch)
        if own is not None:  # what a search keeps has a row per node
            kept = {name: tensors.pop(_SEARCH + name) for name in _part(tensors, _SEARCH)}
            write_safetensors(own, kept, {"epoch": str(state.epoch)}, new_folders=False)
            state.graph.engine.barrier()  # the checkpoint counts from when the leading rank has written it
        if state.graph.engine.leads:
            write_safetensors(self.path, tensors, about, new_folders=False)
        if own is not None:
            state.graph.engine.barrier()
            for old in own.parent.glob(own.name.replace(f"-epoch-{state.epoch}.", "-epoch-*.")):
                if old != own:
                    old.unlink(missing_ok=True)

    def _content(self, state: TrainState) -> tuple[dict[str, str], dict[str, Tensor]]:
        tensors: dict[str, Tensor] = {"generator": state.generator.get_state()}
        for name in _PARTS:
            if (part := getattr(state, name)) is not None:
                tensors |= {f"{name}.{key}": tensor for key, tensor in part.state_dict().items()}
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
            "space": state.method.space,
            "stop": json.dumps(state.stop),
            "events": json.dumps(state.events),
        }
        return about, tensors

    def load(self, state: TrainState) -> None:
        """Restore ``state`` and the callbacks; a checkpoint of another run is refused and changes nothing."""
        try:
            about, tensors = read_safetensors(self.path)
        except (OSError, ValueError) as error:
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
        before, kept = self._content(state)
        kept = {name: tensor.detach().clone() for name, tensor in kept.items()}
        try:
            own = state.graph.engine.own_file(self.path, int(about["epoch"]))
            if own is not None:
                tensors |= {_SEARCH + name: tensor for name, tensor in _read_own(own).items()}
            self._restore(state, about, tensors)
        except _UNFIT as error:
            self._restore(state, before, kept)
            if isinstance(error, TrainingError):
                raise
            why = f"{type(error).__name__}: {error}".splitlines()[0]
            raise TrainingError(
                f"{self.path} does not hold a state of this run ({why}): delete it and start this seed again"
            ) from None

    def _restore(self, state: TrainState, about: Mapping[str, str], tensors: Mapping[str, Tensor]) -> None:
        """Take over what a checkpoint holds; one of ``_UNFIT`` if that is not a state of this run."""
        tensors = {name: tensor.to(state.graph.device) for name, tensor in tensors.items()}
        state.generator.set_state(tensors["generator"].cpu())
        for name in _PARTS:
            if (part := getattr(state, name)) is not None:
                found = _part(tensors, f"{name}.")
                if name != "method":  # what a search keeps has the shape that it had last
                    check_fits(found, part.state_dict())
                part.load_state_dict(found)
        columns = json.loads(about["columns"])
        state.metrics = [dict(zip(columns, row, strict=True)) for row in tensors["metrics"].tolist()]
        state.epoch, state.stop = int(about["epoch"]), json.loads(about["stop"])
        state.method.space = about["space"]
        state.events = json.loads(about["events"])
        _check_restored(state)
        for callback in self.callbacks:
            if kept := _part(tensors, f"callback.{callback.name}/"):
                callback.load_state_dict(kept)
                callback.check_restored(state)


def _check_restored(state: TrainState) -> None:
    """Raise ValueError unless epochs, metrics and events fit each other."""
    epochs = [row["epoch"] for row in state.metrics]
    if len(epochs) != state.epoch or epochs != list(range(1, len(epochs) + 1)):
        raise ValueError("its metrics are not those of its epochs")
    if state.metrics and not state.metrics[0].keys() >= set(METRICS):
        raise ValueError("it lacks a metric")
    if type(state.stop) is not bool or not all(type(event) is str for event in state.events):
        raise ValueError("its events are not texts")


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, without it."""
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _read_own(path: Path) -> dict[str, Tensor]:
    try:
        return read_safetensors(path)[1]
    except (OSError, ValueError) as error:
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
        about = {"seed": str(state.seed), "graph": graph_fingerprint(state.graph)}
        return {**about, "settings": json.dumps(state.settings.first_phase(), sort_keys=True)}

    def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
        """Write nothing: it is saved when the first phase ends."""

    def load_if_present(self, state: TrainState) -> None:
        """Restore the end of the first phase; a file that cannot be used counts as missing."""
        if self.path.exists():
            with suppress(TrainingError):
                self.load(state)
