"""Callbacks that send the metrics of every epoch to TensorBoard, MLflow or Weights & Biases.

MLflow writes to ``MLFLOW_TRACKING_URI``, by its own default the file ``mlflow.db``. Weights & Biases writes
to the folder of the seed and sends nothing unless ``WANDB_MODE`` is ``online``. Neither reports its use.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from bvat.errors import SettingsError
from bvat.training.callbacks import REPORT_EVERY, Callback
from bvat.training.state import TrainState

PROJECT = "bvat"
"""Of Weights & Biases, and the experiment of MLflow."""


class Tracker(Callback):
    """Sends the finite metrics of every epoch somewhere; a subclass says where.

    Args:
        folder: of the seed, or any other folder for this run alone.
    """

    package: str
    """What to import."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.module = self.load()

    @classmethod
    def load(cls) -> Any:
        """Import the package; SettingsError if it is not installed."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        try:
            return import_module(cls.package)
        except ImportError:
            extra = next(name for name, kind in TRACKERS.items() if kind is cls)
            raise SettingsError(
                f"logging with {cls.__name__} needs the package {extra}: pip install 'bvat[{extra}]'"
            ) from None

    @classmethod
    def prepare(cls) -> None:
        """Refuse what cannot work; called once, before anything is trained and other processes start."""
        cls.load()

    def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
        found = {name: v for name, v in row.items() if name != "epoch" and math.isfinite(v)}
        self.log(found, state.epoch)
        if state.interrupted:
            self.on_end(state)

    def log(self, metrics: Mapping[str, float], epoch: int) -> None:
        """Send the metrics of an epoch."""
        raise NotImplementedError

    def about(self, state: TrainState) -> dict[str, Any]:
        return {"graph": state.graph.name, "seed": state.seed, **state.settings.as_dict()}

    @property
    def title(self) -> str:
        """The names of the run folder and of the seed."""
        return "/".join(self.folder.absolute().parts[-2:])


class TensorBoardLogger(Tracker):
    """Writes event files to ``folder/tensorboard``; show them with ``tensorboard --logdir FOLDER``."""

    package = "torch.utils.tensorboard"

    def on_start(self, state: TrainState) -> None:
        """Open the event file; of an earlier process the epochs after its checkpoint are discarded."""
        path = str(self.folder / "tensorboard")
        self._writer = self.module.SummaryWriter(path, purge_step=state.epoch + 1)

    def log(self, metrics: Mapping[str, float], epoch: int) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, epoch)
        if epoch % REPORT_EVERY == 0:
            self._writer.flush()

    def on_end(self, state: TrainState) -> None:
        self._writer.close()


class MLflowLogger(Tracker):
    """Makes an MLflow run; its id is kept in ``folder/mlflow-run``, so that resumed training continues it."""

    package = "mlflow"

    @classmethod
    def prepare(cls) -> None:
        """Make the experiment, and with it the tables of a new store, which only one process may do."""
        mlflow = cls.load()
        try:
            mlflow.set_experiment(PROJECT)
        except mlflow.MlflowException as error:
            raise SettingsError(f"MLflow cannot be used ({error}): set MLFLOW_TRACKING_URI") from None

    def on_start(self, state: TrainState) -> None:
        self._client, kept = self.module.MlflowClient(), self.folder / "mlflow-run"
        if kept.exists():
            self._run = kept.read_text()
            self._client.update_run(self._run, status="RUNNING")
            return
        experiment = self.module.set_experiment(PROJECT).experiment_id
        self._run = self._client.create_run(experiment, run_name=self.title).info.run_id
        for name, value in self.about(state).items():
            self._client.log_param(self._run, name, value)
        self.folder.mkdir(parents=True, exist_ok=True)
        kept.write_text(self._run)

    def log(self, metrics: Mapping[str, float], epoch: int) -> None:
        entity, now = self.module.entities.Metric, int(1000 * time.time())
        batch = [entity(name, value, now, epoch) for name, value in metrics.items()]
        self._client.log_batch(self._run, metrics=batch)

    def on_end(self, state: TrainState) -> None:
        self._client.set_terminated(self._run, "KILLED" if state.interrupted else "FINISHED")


class WandbLogger(Tracker):
    """Makes a run of Weights & Biases in ``folder/wandb``; ``wandb sync`` sends it later."""

    package = "wandb"

    def on_start(self, state: TrainState) -> None:
        """Start the run; resumed training makes another one, since a run that is offline cannot continue."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._run = self.module.init(
            project=PROJECT,
            group=self.folder.absolute().parent.name,
            name=self.title,
            dir=self.folder,
            config=self.about(state),
            mode=os.environ.get("WANDB_MODE", "offline"),
            settings=self.module.Settings(silent=True, console="off", reinit="create_new"),
        )

    def log(self, metrics: Mapping[str, float], epoch: int) -> None:
        self._run.log(dict(metrics), step=epoch)

    def on_end(self, state: TrainState) -> None:
        self._run.finish()


TRACKERS: dict[str, type[Tracker]] = {
    "tensorboard": TensorBoardLogger,
    "mlflow": MLflowLogger,
    "wandb": WandbLogger,
}
"""By the name of their option and of their extra."""
