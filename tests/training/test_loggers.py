"""Loggers write every epoch once, also after training was interrupted and resumed."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

import bvat
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.store.folder import RunFolder
from bvat.store.store import SeedTrainer
from bvat.training.callbacks import Callback, CSVLogger, TensorBoardLogger
from bvat.training.loop import METRICS, train
from bvat.training.settings import Settings

SETTINGS = Settings(method="none", epochs=12)


class FailAt(Callback):
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch(self, state, row) -> None:
        if state.epoch == self.epoch:
            raise RuntimeError("the machine is switched off")


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def interrupted_and_resumed(graph: Graph, folder: Path, logger: Callback) -> Any:
    common = {"checkpoint": folder / "checkpoint", "checkpoint_every": 4}
    with pytest.raises(RuntimeError, match="switched off"):
        train(graph, SETTINGS, callbacks=[logger, FailAt(7)], **common)
    return train(graph, SETTINGS, callbacks=[logger], resume=True, **common)


def test_csv_has_every_epoch_once(small: Graph, tmp_path: Path) -> None:
    path = tmp_path / "new" / "log.csv"
    trained = interrupted_and_resumed(small, tmp_path, CSVLogger(path))
    rows = lines(path)
    assert list(rows[0]) == list(METRICS)
    assert [int(row["epoch"]) for row in rows] == list(range(1, 13))
    assert [float(row["loss"]) for row in rows] == [row["loss"] for row in trained.metrics]
    assert {row["val_loss"] for row in rows} == {""}


def test_the_log_of_a_run_is_its_table_of_metrics(small: Graph, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.start(small, SETTINGS, resume=False)
    seen: list[str] = []
    log = folder.seed_path(0) / "metrics.csv"
    trainer = SeedTrainer(folder, small, SETTINGS, log=("csv",))
    trainer.run(0, lambda epochs: seen.append(log.read_text("utf-8") if log.exists() else ""))
    assert 10 <= seen[0].count("\n") < 13  # the first report comes while training runs
    assert log.read_text("utf-8").startswith(seen[0])


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
    assert bvat.CSVLogger is CSVLogger
    assert bvat.TensorBoardLogger is TensorBoardLogger
