"""Settings and presets."""

from __future__ import annotations

from dataclasses import fields

import pytest

from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.perturb.methods import METHODS
from bvat.training.loop import train
from bvat.training.settings import Settings, has_preset, preset

DATASETS = ("cora", "citeseer", "pubmed", "nell")


@pytest.mark.parametrize("dataset", [*DATASETS, "somebody-elses"])
@pytest.mark.parametrize("method", METHODS)
def test_every_pair_has_settings_within_their_ranges(dataset: str, method: str) -> None:
    settings = preset(dataset, method)
    assert settings.method == method
    assert has_preset(dataset) == (dataset in DATASETS)
    assert (settings.beta == 0) == (METHODS[method].build == "")


def test_the_paper_settings_of_the_base_model() -> None:
    for dataset in DATASETS:
        settings = preset(dataset, "gcn")
        nell = dataset == "nell"
        assert settings.hidden == (64 if nell else 16)
        assert settings.dropout == (0.1 if nell else 0.5)
        assert settings.weight_decay == (1e-5 if nell else 5e-4)
        assert (settings.lr, settings.layers) == (0.01, 2)
        assert settings.epochs == (70 if nell else 200)  # of NELL chosen on validation labels
        assert settings.alpha == 0


def test_overrides_win() -> None:
    assert preset("cora", "obvat", alpha=0.25, hidden=7).alpha == 0.25
    assert preset("cora", "obvat", hidden=7).hidden == 7


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("lr", 0.0, "lr must be above 0, not 0.0"),
        ("lr", float("nan"), "lr must be a finite number"),
        ("hidden", 0, "hidden must be at least 1, not 0"),
        ("hidden", 2.5, "hidden must be of type int, not 2.5"),
        ("dropout", 1.0, "dropout must be below 1, not 1.0"),
        ("epochs", -3, "epochs must be at least 1, not -3"),
        ("select", "first", "select must be one of last, best, accuracy, loss, both, not 'first'"),
        ("space", "curved", "space must be one of auto, dense, sparse, factored, not 'curved'"),
        ("keep_moments", 1, "keep_moments must be of type bool, not 1"),
        ("layers", True, "layers must be of type int, not True"),
        ("epsilon", -0.1, "epsilon must be at least 0, not -0.1"),
        ("widgets", 1, "there is no setting 'widgets'"),
    ],
)
def test_bad_values_are_named(name: str, value: object, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        preset("cora", "obvat", **{name: value})
    assert message in str(caught.value)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(SettingsError, match="no method 'magic': use one of gcn"):
        preset("cora", "magic")


def test_every_setting_is_described() -> None:
    assert all(f.metadata["help"] for f in fields(Settings))


def test_other_models_do_not_take_what_was_tuned_for_a_gcn() -> None:
    gat = preset("cora", "obvat", model="gat")
    assert (gat.hidden, gat.dropout, gat.alpha, gat.beta) == (64, 0.6, 0.2, 0.5)
    assert preset("cora", "gcn", model="gat").beta == 0


def test_the_identity_of_settings_does_not_change_when_a_field_is_added() -> None:
    """Runs of earlier versions, which had no ``samples``, are found again; runs with samples are not."""
    before = preset("cora", "vat").identity()
    assert "samples" not in before
    assert preset("cora", "vat", samples=4).identity() == {**before, "samples": 4}
    assert preset("cora", "vat", epsilon=0.5).identity() == {**before, "epsilon": 0.5}


def test_clip_and_epsilon_reach_the_optimiser(graph: Graph) -> None:
    plain, *changed = (
        train(graph, Settings(method="gcn", epochs=3, **options)).metrics[-1]["loss"]
        for options in ({}, {"clip": 1e-7}, {"adam_epsilon": 1.0})
    )
    assert all(loss != plain for loss in changed)
