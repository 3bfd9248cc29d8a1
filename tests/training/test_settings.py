"""Settings and presets."""

from __future__ import annotations

from collections import UserDict
from dataclasses import fields
from typing import Any

import pytest

from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.perturb.divergence import KL
from bvat.perturb.methods import METHODS
from bvat.training.loop import train
from bvat.training.settings import Settings, has_preset, preset
from bvat.tuning.variants import settings_of

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
        settings = preset(dataset, "none")
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
    with pytest.raises(SettingsError, match="no method 'magic': use one of none"):
        preset("cora", "magic")


def test_every_setting_is_described() -> None:
    assert all(f.metadata["help"] for f in fields(Settings))


def test_other_models_do_not_take_what_was_tuned_for_a_gcn() -> None:
    gat = preset("cora", "obvat", model="gat")
    assert (gat.hidden, gat.dropout, gat.alpha, gat.beta) == (64, 0.6, 0.2, 0.5)
    assert preset("cora", "none", model="gat").beta == 0


def test_the_identity_of_settings_does_not_change_when_a_field_is_added() -> None:
    """Runs of earlier versions, which had no ``samples``, are found again; runs with samples are not."""
    before = preset("cora", "vat").identity()
    assert "samples" not in before
    assert preset("cora", "vat", samples=4).identity() == {**before, "samples": 4}
    assert preset("cora", "vat", epsilon=0.5).identity() == {**before, "epsilon": 0.5}


def test_clip_and_epsilon_reach_the_optimiser(graph: Graph) -> None:
    plain, *changed = (
        train(graph, Settings(method="none", epochs=3, **options)).metrics[-1]["loss"]
        for options in ({}, {"clip": 1e-7}, {"adam_epsilon": 1.0})
    )
    assert all(loss != plain for loss in changed)


def refused(method: str, **overrides: Any) -> str:
    with pytest.raises(SettingsError, match="has no effect") as caught:
        preset("", method, **overrides)
    return str(caught.value)


def test_a_setting_without_effect_is_refused() -> None:
    assert refused("lp", hidden=999) == (
        "hidden has no effect with lp, which trains no network: leave it out"
    )
    assert refused("lp", epochs=5).startswith("epochs has no effect with lp")
    assert refused("vat", heads=4) == "heads has no effect with gcn: leave it out, it belongs to gat"
    assert refused("vat", model="sgc", hidden=8).startswith("hidden has no effect with sgc")
    assert refused("none", epsilon=0.1) == (
        "epsilon has no effect with none: leave it out, it belongs to random, vat, sbvat, obvat with search "
        "fast"
    )
    assert refused("vat", temperature=0.4).endswith("it belongs to grand")
    assert refused("semiemb", variant="").startswith("variant has no effect with semiemb")
    assert refused("obvat", search="adam", epsilon=0.1).startswith("epsilon has no effect with obvat")
    assert refused("obvat", search="fast", gamma=0.1).endswith("it belongs to obvat with search adam")
    assert preset("", "vat", samples=3, temperature=0.4).temperature == 0.4
    assert preset("", "lp", variant="harmonic").variant == "harmonic"
    assert preset("", "vat", model="gat", heads=4, clip=1.0).heads == 4


def test_of_several_methods_one_must_read_a_setting() -> None:
    found = settings_of(["gcn", "vat", "lp"], {"epsilon": 0.4, "epochs": 7})
    assert [(s.epsilon, s.epochs) for s in found.values()] == [(Settings().epsilon, 7), (0.4, 7), (0.03, 1)]
    with pytest.raises(SettingsError, match=r"count has no effect with none, vat: .* belongs to sbvat"):
        settings_of(["gcn", "vat"], {"count": 4})
    with pytest.raises(SettingsError, match="there is no setting 'nothing'"):
        settings_of(["gcn", "lp"], {"nothing": 4})


@pytest.mark.parametrize("search", ["adam", "fast"])
@pytest.mark.parametrize("method", [name for name, row in METHODS.items() if row.build])
def test_the_table_names_what_a_method_reads(method: str, search: str) -> None:
    """What its builder takes of the settings and of the options that all regularisers share."""
    settings, taken = preset("", method, **({"search": search} if method == "obvat" else {})), set()

    class Recorder:
        def __getattr__(self, name: str) -> Any:
            taken.add(name)
            return getattr(settings, name)

    class Options(UserDict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            taken.add({"dropout": "masks"}.get(name, name))
            return super().__getitem__(name)

    options = {"space": "auto", "dropout": "fresh", "divergence": KL(), "confidence": 0.0, "generator": None}
    row = METHODS[method]
    row.builder()(Recorder(), Options(options))
    assert taken - {"generator"} == row.reads(settings) - {"beta"}  # beta is the weight of all of them
