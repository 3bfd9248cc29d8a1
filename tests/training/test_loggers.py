"""Loggers write every epoch once, also after training was interrupted and resumed."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

import bvat
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.training.callbacks import Callback
from bvat.training.loop import train
from bvat.training.settings import Settings
from bvat.training.trackers import TRACKERS, MLflowLogger, TensorBoardLogger, WandbLogger
from training_helpers import killed_and_resumed

SETTINGS = Settings(method="none", epochs=12)


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
    trained = killed_and_resumed(
        small, SETTINGS, tmp_path / "c", 7, 4, TensorBoardLogger(tmp_path / "seed-0")
    )
    first, second = FakeWriter.opened
    assert (first.purge_step, first.closed) == (1, False)
    assert (second.purge_step, second.closed) == (5, True)  # of the checkpoint after epoch 4
    assert second.folder == str(tmp_path / "seed-0/tensorboard")
    losses = [(value, epoch) for name, value, epoch in second.scalars if name == "loss"]
    assert losses == [(row["loss"], row["epoch"]) for row in trained.metrics[4:]]
    assert not {name for name, _, _ in second.scalars} & {"epoch", "val_loss", "largest_class"}


def test_event_files_can_be_read(small: Graph, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trained = train(small, SETTINGS, callbacks=[TensorBoardLogger(tmp_path)])
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    found = events.Scalars("test_accuracy")
    assert [event.step for event in found] == list(range(1, 13))
    expected = [row["test_accuracy"] for row in trained.metrics]
    assert [event.value for event in found] == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow uses an old form of sqlalchemy
def test_mlflow_continues_its_run(small: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    store = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    folder = tmp_path / "my-run" / "seed-0"
    trained = killed_and_resumed(small, SETTINGS, tmp_path / "c", 7, 4, MLflowLogger(folder))
    client = mlflow.MlflowClient(store)
    experiment = client.get_experiment_by_name("bvat").experiment_id
    (run,) = client.search_runs([experiment])
    assert (run.info.run_name, run.info.status) == ("my-run/seed-0", "FINISHED")
    assert (run.data.params["method"], run.data.params["seed"]) == ("none", "0")
    history = {each.step: each.value for each in client.get_metric_history(run.info.run_id, "loss")}
    assert history == {row["epoch"]: row["loss"] for row in trained.metrics}
    train(small, SETTINGS, callbacks=[MLflowLogger(tmp_path / "my-run" / "seed-1")])
    assert len(client.search_runs([experiment])) == 2


@pytest.mark.slow
def test_wandb_offline(small: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    trained = train(small, SETTINGS, callbacks=[WandbLogger(tmp_path / "seed-0")])
    (file,) = (tmp_path / "seed-0" / "wandb").glob("offline-run-*/*.wandb")
    found: list[float] = []
    for _ in range(100):  # a process of its own writes the file
        time.sleep(0.1)
        values = re.findall(rb"\x04loss\x82\x01.([\d.e+-]+)\n", file.read_bytes(), re.DOTALL)
        found = list(dict.fromkeys(float(value) for value in values))  # the summary repeats some
        if len(found) >= len(trained.metrics):
            break
    assert found[: len(trained.metrics)] == [row["loss"] for row in trained.metrics]


class FakeTracker:
    """What mlflow and wandb look like to their loggers, in few lines."""

    def __init__(self) -> None:
        self.rows: list[tuple[dict[str, float], int]] = []
        self.asked: dict[str, Any] = {}
        self.Settings = dict

    def init(self, **asked: Any) -> FakeTracker:
        self.asked = asked
        return self

    def log(self, metrics: dict[str, float], step: int) -> None:
        self.rows.append((metrics, step))

    def finish(self) -> None:
        self.rows.append(({}, -1))


def test_wandb_sends_nothing_unless_it_is_told_to(
    small: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeTracker()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    trained = train(small, SETTINGS, callbacks=[WandbLogger(tmp_path / "my-run" / "seed-0")])
    assert (fake.asked["mode"], fake.asked["name"]) == ("offline", "my-run/seed-0")
    assert fake.asked["config"]["method"] == "none"
    assert [row["loss"] for row, _ in fake.rows[:-1]] == [row["loss"] for row in trained.metrics]
    assert [step for _, step in fake.rows] == [*range(1, 13), -1]
    monkeypatch.setenv("WANDB_MODE", "online")
    train(small, SETTINGS, callbacks=[WandbLogger(tmp_path)])
    assert fake.asked["mode"] == "online"


@pytest.mark.parametrize("name", list(TRACKERS))
def test_without_the_package_the_extra_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, TRACKERS[name].package, None)
    with pytest.raises(SettingsError, match=rf"pip install 'bvat\[{name}\]'"):
        TRACKERS[name](tmp_path)


def test_callbacks_are_public() -> None:
    assert bvat.Callback is Callback
    assert [bvat.TensorBoardLogger, bvat.MLflowLogger, bvat.WandbLogger] == list(TRACKERS.values())
