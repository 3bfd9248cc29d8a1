"""Plots from Python and tables in notebooks: one chart engine, everything escaped."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

import bvat
from bvat.audit import audit
from bvat.audit.audit import Audit
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.models import GCN
from bvat.report.plots import Figure
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


def titles(figure: Figure) -> str:
    """Return all text of a figure that is well-formed XML without scripts."""
    root = ET.fromstring(figure.svg)
    assert not [element for element in root.iter() if element.tag.endswith("script")]
    return " ".join(text for text in root.itertext())


def test_a_trained_model_plots_its_curves(trained: TrainedModel, tmp_path: Path) -> None:
    figure = trained.plot()
    assert all(word in titles(figure) for word in ("Loss", "Accuracy", "R_vadv", "validation", "seed 0"))
    assert figure._repr_svg_() == bvat.plot(trained).svg == figure.svg
    figure.save(tmp_path / "new" / "training.svg")
    assert (tmp_path / "new" / "training.svg").read_text("utf-8") == figure.svg
    assert "Figure(" in repr(figure)


def test_seeds_are_drawn_together(trained: TrainedModel) -> None:
    assert "2 seeds" in titles(bvat.plot(trained, replace(trained, seed=1)))


def test_an_audit_plots_its_distributions(audited: Audit) -> None:
    assert "Nodes whose class changes within this norm" in titles(audited.plot())
    assert "audit 2" in titles(bvat.plot(audited, audited))


def test_a_classifier_is_plotted_by_its_training(small: Graph) -> None:
    assert "Accuracy" in titles(bvat.plot(bvat.NodeClassifier("none", epochs=3).fit(small)))


def test_what_cannot_be_plotted_gets_a_sentence(
    trained: TrainedModel, audited: Audit, tmp_path: Path
) -> None:
    for things in ((), (3,), (trained, audited), (bvat.NodeClassifier("none"),)):
        with pytest.raises(SettingsError, match=r"plot"):
            bvat.plot(*things)
    with pytest.raises(SettingsError, match=r"ends in \.svg"):
        trained.plot().save(tmp_path / "training.png")


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
