"""A run that stops early says at which epoch and why, also after it was resumed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bvat.graph import Graph
from bvat.training.callbacks import BestEpoch, Callback, EarlyStopping
from bvat.training.loop import train
from bvat.training.phases import stopping_text
from bvat.training.settings import Settings, preset
from training_helpers import same


class StopAt(Callback):
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch(self, state, row) -> None:
        state.stop = state.stop or state.epoch == self.epoch


def test_patience_is_named(small: Graph) -> None:
    trained = train(small, Settings(method="none", epochs=200, patience=4, select="best"))
    epochs = len(trained.metrics)
    assert trained.stopped == f"stopped at epoch {epochs} of 200: no better validation for 4 epochs"
    assert epochs == trained.best["epoch"] + 4


def test_the_last_epoch_is_no_early_stop(small: Graph) -> None:
    assert train(small, Settings(method="none", epochs=5)).stopped == ""


def test_a_callback_is_named(small: Graph) -> None:
    trained = train(small, Settings(method="none", epochs=9), callbacks=[StopAt(3)])
    assert trained.stopped == "stopped at epoch 3 of 9: a callback asked for it"
    assert len(trained.metrics) == 3


@pytest.mark.parametrize("method", ["none", "vat"])
def test_two_phases(small: Graph, method: str) -> None:
    patient = preset("", method, epochs=40, patience=0)
    assert train(small, patient).stopped == ""
    hasty = preset("", method, epochs=400, patience=5)
    assert train(small, hasty).stopped.endswith("no better validation for 5 epochs")


def test_a_resumed_run_says_the_same(small: Graph, tmp_path: Path) -> None:
    settings = Settings(method="none", epochs=200, patience=4, select="best")
    checkpoint = tmp_path / "checkpoint.safetensors"
    first = train(small, settings, checkpoint=checkpoint, checkpoint_every=1)
    assert first.stopped
    assert same(train(small, settings, checkpoint=checkpoint, resume=True), first)


def test_many_seeds_are_described_together() -> None:
    one = "seed {} stopped at epoch {} of 200: no better validation for 50 epochs"
    assert stopping_text([], 4) == ""
    assert stopping_text([one.format(2, 80)], 4) == one.format(2, 80)
    assert stopping_text([one.format(k, 80 + k) for k in range(5)], 6) == (
        "5 of 6 seeds stopped early, at epochs 80 to 84: no better validation for 50 epochs"
    )


def rows(*values: tuple[float, float]) -> list[dict[str, float]]:
    return [{"val_accuracy": accuracy, "val_loss": loss} for accuracy, loss in values]


def test_both_keeps_the_last_epoch_in_which_nothing_was_worse_than_ever_before() -> None:
    """The rule of GAT's authors: either resets patience, both are needed to be kept."""
    best = BestEpoch("both")
    stopping = EarlyStopping(best, 2)
    state = SimpleNamespace(epoch=0, stop=False, evaluated=torch.nn.Linear(1, 1), optimizer=None)
    course = rows((50, 1.0), (60, 1.2), (55, 0.9), (60, 0.9), (59, 1.0), (60, 1.1), (59, 0.95), (58, 0.91))
    kept, waited = [], []
    for state.epoch, row in enumerate(course, 1):
        best.on_epoch(state, row)
        stopping.on_epoch(state, row)
        kept.append(best.epoch)
        waited.append(state.epoch - best.progress)
    assert kept == [1, 1, 1, 4, 4, 4, 4, 4]
    assert waited == [0, 0, 0, 0, 1, 0, 1, 2]
    assert state.stop
    resumed = BestEpoch("both")
    resumed.load_state_dict(best.state_dict())
    assert (resumed.epoch, resumed.progress, resumed.value) == (4, 6, (60, -0.9))


def test_both_selects_the_kept_epoch_and_names_patience(small: Graph) -> None:
    trained = train(small, Settings(method="none", epochs=400, patience=4, select="both"))
    assert trained.selected == trained.best
    assert trained.stopped.endswith("no better validation for 4 epochs")
    assert all(row["val_loss"] > 0 for row in trained.metrics)
    assert train(small, Settings(method="none", epochs=3, select="both")).stopped == ""
