"""Settings and presets."""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from inspect import isfunction
from typing import Any

import pytest
import torch

from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.models.table import MODELS
from bvat.perturb import FLAG, OBVAT, SBVAT, VAT, Consistency, Random
from bvat.perturb.methods import METHODS
from bvat.training.loop import train
from bvat.training.options import Training
from bvat.training.settings import Settings, all_fields, has_preset, owners, preset
from bvat.tuning.variants import settings_of
from training_helpers import other_values

DATASETS = ("cora", "citeseer", "pubmed", "nell")


@pytest.mark.parametrize("dataset", [*DATASETS, "somebody-elses"])
@pytest.mark.parametrize("method", METHODS)
def test_every_pair_has_settings_within_their_ranges(dataset: str, method: str) -> None:
    settings = preset(dataset, method)
    assert settings.method == method
    assert has_preset(dataset) == (dataset in DATASETS)
    assert getattr(settings, "beta", 0) == 0 or METHODS[method].home


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
    assert all(f.metadata["help"] for f in all_fields().values())


def test_a_name_means_the_same_in_every_part() -> None:
    """An option of the command line has one type, one set of choices and one line of help."""
    for row in (*MODELS.values(), *METHODS.values()):
        for f in fields(row.options):
            first = all_fields()[f.name]
            assert type(f.default) is type(first.default)
            assert (f.metadata["choices"], f.metadata["help"]) == (
                first.metadata["choices"],
                first.metadata["help"],
            )
    assert not {f.name for f in fields(Training)} & set(owners())
    assert len(fields(Training)) <= 20


def test_other_models_do_not_take_what_was_tuned_for_a_gcn() -> None:
    gat = preset("cora", "obvat", model="gat")
    assert (gat.hidden, gat.dropout, gat.alpha, gat.beta) == (64, 0.6, 0.2, 0.5)
    assert preset("cora", "none", model="gat").alpha == 0


def test_settings_are_three_parts_with_flat_names() -> None:
    settings = Settings("vat", "gat", Training(epochs=9), heads=4, epsilon=0.1)
    assert (settings.epochs, settings.heads, settings.epsilon) == (9, 4, 0.1)
    assert settings.of_model == MODELS["gat"].options(heads=4)
    assert settings.of_method == METHODS["vat"].options(epsilon=0.1)
    assert Settings(**settings.as_dict()) == settings
    assert copy.deepcopy(settings) == settings  # as a worker process gets it
    assert hash(settings) == hash(Settings(**settings.as_dict()))
    changed = settings.replace(method="obvat", epochs=5)
    assert (changed.epochs, changed.heads, changed.epsilon) == (5, 4, METHODS["obvat"].options().epsilon)
    with pytest.raises(AttributeError, match="clusters"):
        _ = settings.clusters


def test_a_setting_that_nothing_here_has_is_refused_by_the_constructor_too() -> None:
    with pytest.raises(SettingsError, match="heads has no effect with gcn: leave it out, it belongs to gat"):
        Settings("vat", heads=4)
    with pytest.raises(
        SettingsError, match="count has no effect with vat: leave it out, it belongs to sbvat"
    ):
        Settings("vat", count=4)


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
    assert refused("auto", epochs=5) == (
        "epochs has no effect with auto, whose networks have their own: leave it out"
    )
    assert refused("vat", effort=1) == "effort has no effect with vat: leave it out, it belongs to auto"
    assert refused("lp", epochs=5).startswith("epochs has no effect with lp")
    assert refused("vat", heads=4) == "heads has no effect with gcn: leave it out, it belongs to gat"
    assert refused("vat", model="sgc", hidden=8).startswith("hidden has no effect with sgc")
    assert refused("none", epsilon=0.1) == (
        "epsilon has no effect with none: leave it out, it belongs to random, vat, sbvat, obvat with search "
        "fast"
    )
    assert refused("vat", temperature=0.4).endswith("it belongs to grand")
    assert refused("semiemb", hidden=8).startswith("hidden has no effect with semiemb, which trains no")
    assert refused("obvat", search="adam", epsilon=0.1).startswith("epsilon has no effect with obvat")
    assert refused("obvat", search="fast", gamma=0.1).endswith("it belongs to obvat with search adam")
    assert preset("", "vat", samples=3, temperature=0.4).temperature == 0.4
    assert preset("", "vat", model="gat", heads=4, clip=1.0).heads == 4


def test_of_several_methods_one_must_read_a_setting() -> None:
    found = settings_of(["gcn", "vat", "lp"], {"epsilon": 0.4, "epochs": 7})
    assert [s.epochs for s in found.values()] == [7, 7, 1]
    assert found["vat"].epsilon == 0.4
    with pytest.raises(SettingsError, match=r"count has no effect with none, vat: .* belongs to sbvat"):
        settings_of(["gcn", "vat"], {"count": 4})
    with pytest.raises(SettingsError, match="there is no setting 'nothing'"):
        settings_of(["gcn", "lp"], {"nothing": 4})


def described(thing: Any) -> Any:
    """Return the types and values in a regulariser, which has no equality."""
    if not isinstance(thing, torch.Generator) and hasattr(thing, "__dict__") and not isfunction(thing):
        return type(thing), {name: described(value) for name, value in vars(thing).items()}
    return thing


SHORTHANDS = {
    "consistency": Consistency, "random": Random, "vat": VAT, "sbvat": SBVAT, "obvat": OBVAT, "flag": FLAG,
}  # fmt: skip


@pytest.mark.parametrize("method", [name for name, row in METHODS.items() if row.home])
def test_a_method_has_one_set_of_defaults(method: str) -> None:
    """What ``bvat.VAT()`` does is what ``bvat train --method vat`` does to a graph of one's own."""
    row, own = METHODS[method], SHORTHANDS[method](generator=0)
    built = row.build(row.options(), own.generator)
    assert described(built) == described(own)
    given = preset("", method)
    differs = {f.name for f in fields(row.options) if getattr(given, f.name) != f.default}
    assert differs <= {"confidence"}  # which asks for a model that was trained without it first


@pytest.mark.parametrize("search", ["adam", "fast"])
@pytest.mark.parametrize("method", [name for name, row in METHODS.items() if row.home])
def test_every_setting_of_a_method_reaches_its_callable(method: str, search: str) -> None:
    row = METHODS[method]
    base = row.options(**({"search": search} if method == "obvat" else {}))
    weights = {"alpha", "beta", "samples"}  # which the training step reads itself
    for f in fields(row.options):
        if f.name in base.read() - weights:
            changed = replace(base, **{f.name: other_values(f, getattr(base, f.name))[0]})
            assert described(row.build(changed)) != described(row.build(base)), f.name
