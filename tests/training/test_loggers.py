"""Loggers write every epoch once, also after training was interrupted and resumed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

import bvat
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.training.callbacks import Callback, TensorBoardLogger
from bvat.training.loop import train
from bvat.training.settings import Settings

SETTINGS = Settings(method="none", epochs=12)


class FailAt(Callback):
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch(self, state, row) -> None:
        if state.epoch == self.epoch:
            raise RuntimeError("the machine is switched off")


def interrupted_and_resumed(graph: Graph, folder: Path, logger: Callback) -> Any:
    common = {"checkpoint": folder / "checkpoint", "checkpoint_every": 4}
    with pytest.raises(RuntimeError, match="switched off"):
        train(graph, SETTINGS, callbacks=[logger, FailAt(7)], **common)
    return train(graph, SETTINGS, callbacks=[logger], resume=True, **common)


class FakeWriter:
    opened: ClassVar[list[FakeWriter]] = []

    def __init__(self, folder: str, purge_step: int) -> None:
        self.folder, self.purge_step, self.closed = folder, purge_step, False
        self.scalars: list[tuple[str, float, int]] = []
        FakeWriter.opened.append(self)

    def add_scalar(self, name: str, value: float, epoch: int) -> None:
        self.scalars.append((name, value, epoch))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def test_tensorboard_gets_every_metric(small: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = FakeWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setattr(FakeWriter, "opened", [])
    trained = interrupted_and_resumed(small, tmp_path, TensorBoardLogger(tmp_path / "events"))
    first, second = FakeWriter.opened
    assert (first.purge_step, first.closed) == (1, False)
    assert (second.purge_step, second.closed) == (5, True)  # of the checkpoint after epoch 4
    assert second.folder == str(tmp_path / "events")
    losses = [(value, epoch) for name, value, epoch in second.scalars if name == "loss"]
    assert losses == [(row["loss"], row["epoch"]) for row in trained.metrics[4:]]
    assert not {name for name, _, _ in second.scalars} & {"epoch", "val_loss", "largest_class"}


def test_event_files_can_be_read(small: Graph, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trained = train(small, SETTINGS, callbacks=[TensorBoardLogger(tmp_path)])
    events = EventAccumulator(str(tmp_path)).Reload()
    found = events.Scalars("test_accuracy")
    assert [event.step for event in found] == list(range(1, 13))
    expected = [row["test_accuracy"] for row in trained.metrics]
    assert [event.value for event in found] == pytest.approx(expected)


def test_without_tensorboard_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(SettingsError, match=r"pip install 'bvat\[tensorboard\]'"):
        TensorBoardLogger(tmp_path)


def test_callbacks_are_public() -> None:
    assert bvat.Callback is Callback
    assert bvat.TensorBoardLogger is TensorBoardLogger
