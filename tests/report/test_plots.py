"""Plots from Python, and tables in notebooks."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib import pyplot

import bvat
from bvat.audit import audit
from bvat.audit.certify import BUDGETS
from bvat.audit.result import Audit
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.models import GCN
from bvat.training.loop import TrainedModel, train
from bvat.training.settings import Settings

ATTACK = "<script>alert('x')</script>&"


@pytest.fixture(scope="module")
def trained(small: Graph) -> TrainedModel:
    return train(small, Settings(method="vat", epochs=6))


@pytest.fixture(scope="module")
def audited(small: Graph, trained: TrainedModel) -> Audit:
    model = GCN(small.num_features, small.num_classes)
    model.load_state_dict(trained.weights)
    return audit(model, small, nodes=small.test[:8])


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    pyplot.close("all")


def titles(axes: Any) -> list[str]:
    return [ax.get_title() for ax in axes]


def test_a_trained_model_plots_its_curves(trained: TrainedModel, tmp_path: Path) -> None:
    axes = trained.plot()
    assert titles(axes) == ["Loss", "Accuracy", "R_vadv", "Perturbation"]
    labels = [text.get_text() for text in axes[1].get_legend().get_texts()]
    assert labels == ["train", "validation", "test"]
    assert [list(line.get_xdata()) for line in axes[1].lines] == [[1, 2, 3, 4, 5, 6]] * 3
    figure = axes[0].figure
    assert figure.get_suptitle() == "Training, seed 0"
    for kind, start in (("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")):
        figure.savefig(tmp_path / f"training.{kind}")
        assert (tmp_path / f"training.{kind}").read_bytes().startswith(start)


def test_one_chart_is_drawn_on_axes_that_are_given(trained: TrainedModel, audited: Audit) -> None:
    figure, (left, right) = pyplot.subplots(1, 2)
    assert bvat.plot(trained, what="accuracy", ax=left) is left
    assert audited.plot(what="lds", ax=right) is right
    assert [len(left.lines), len(right.lines)] == [3, 1]
    assert pyplot.get_fignums() == [figure.number]
    assert trained.plot("loss").get_ylabel() == "loss"
    before = matplotlib.rcParams.copy()
    trained.plot()
    assert before == matplotlib.rcParams, "the style is applied to our charts only"


def test_seeds_are_drawn_together(trained: TrainedModel) -> None:
    other = replace(trained, seed=1, metrics=[{**row, "loss": row["loss"] + 1} for row in trained.metrics])
    loss = bvat.plot(trained, other, what="loss")
    assert loss.figure.get_suptitle() == "Training, 2 seeds"
    assert loss.lines[0].get_ydata() == pytest.approx([row["loss"] + 0.5 for row in trained.metrics])
    assert len(loss.collections) == 1, "a band where seeds differ"


def test_an_audit_plots_its_distributions(audited: Audit) -> None:
    assert titles(audited.plot())[0] == "Nodes whose class changes within this norm"
    legend = bvat.plot(audited, audited, what="smallest").get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["audit 1", "audit 2"]


def test_a_certified_audit_has_a_band_for_each_budget(small: Graph, trained: TrainedModel) -> None:
    model = GCN(small.num_features, small.num_classes)
    model.load_state_dict(trained.weights)
    found = audit(model, small, nodes=small.test[:8], certify=True)
    assert titles(found.plot())[2:] == [f"Nodes that keep their class, budget {name}" for name in BUDGETS]
    for budget in BUDGETS:
        assert f"certified to found, budget {budget}" in found._repr_html_()
        band = found.plot("certified" if budget == "graph" else f"certified_{budget}")
        states = found.states(float(band.lines[0].get_xdata()[50]), budget)
        low, high = (100 * float(nodes.double().mean()) for nodes in (states["proved"], ~states["broken"]))
        assert band.lines[0].get_ydata()[50] == pytest.approx((low + high) / 2)


def test_a_classifier_is_plotted_by_its_training(small: Graph) -> None:
    assert titles(bvat.plot(bvat.NodeClassifier("none", epochs=3).fit(small))) == ["Loss", "Accuracy"]


def test_what_cannot_be_plotted_gets_a_sentence(trained: TrainedModel, audited: Audit) -> None:
    for things in ((), (3,), (trained, audited), (bvat.NodeClassifier("none"),)):
        with pytest.raises(SettingsError, match=r"plot"):
            bvat.plot(*things)
    with pytest.raises(SettingsError, match="no plot of 'lds' here: choose one of loss, accuracy"):
        bvat.plot(trained, what="lds")
    with pytest.raises(SettingsError, match="choose it with what="):
        trained.plot(ax=pyplot.figure().add_subplot())


def test_tables_in_notebooks_are_escaped(small: Graph, trained: TrainedModel, audited: Audit) -> None:
    hostile = replace(small, name=ATTACK, class_names=(ATTACK, "b", "c"), validation=ATTACK)
    shown = hostile._repr_html_()
    assert "<script" not in shown
    assert shown.count("&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;") == 3
    assert "120" in shown
    for thing, words in ((trained, "test macro F1"), (audited, "median LDS"), (hostile, "edges")):
        root = ET.fromstring(thing._repr_html_())
        assert root.tag == "table"
        assert words in " ".join(root.itertext())
    assert "<script" not in replace(trained, stopped=ATTACK)._repr_html_()
