"""What every model must do, whatever it computes: the registry's models all go through the same checks."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

import bvat
import own_models
from bvat.errors import SettingsError
from bvat.models import MODELS
from bvat.testing.common import seeded, small_graph
from bvat.testing.models import MODEL_CHECKS, SPLIT_CHECKS, ModelCase

FEATURES, CLASSES = 40, 3
every_model = pytest.mark.parametrize("name", MODELS)
make_graph = cache(small_graph)


@pytest.mark.parametrize("check", [*MODEL_CHECKS, *SPLIT_CHECKS], ids=lambda check: check.__name__)
@every_model
def test_contract(name: str, check: object) -> None:
    check(ModelCase(name, make_graph()))


@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("model", [own_models.deep, own_models.Net, own_models.Curved])
def test_contract_of_modules(model: object, check: object) -> None:
    check(ModelCase(model, make_graph()))


@every_model
def test_every_dropout_mask_is_used(name: str) -> None:
    graph, model = make_graph(), ModelCase(name, make_graph()).build().train()
    masks = model.draw_masks(graph, seeded(1))
    base = model(graph, masks)
    for kind in ("features", "nodes"):
        mask = getattr(masks, kind, None)
        if mask is not None:
            assert not torch.equal(model(graph, replace(masks, **{kind: mask + 1})), base), kind
    for kind in ("hidden", "edges"):
        for k, mask in enumerate(getattr(masks, kind, ())):
            others = list(getattr(masks, kind))
            others[k] = mask + 1
            assert not torch.equal(model(graph, replace(masks, **{kind: tuple(others)})), base), (kind, k)


@every_model
def test_presets_fit_the_model_and_leave_the_plain_method_plain(name: str) -> None:
    plain, regularised = (bvat.preset("cora", method, model=name) for method in ("none", "obvat"))
    assert plain.model == regularised.model == name
    assert plain.alpha == 0 < regularised.beta
    assert not hasattr(plain, "beta")
    assert plain.of_model == regularised.of_model
    if name != "sgc":
        widths = {"gcn": 16, "monet": 16, "random-propagation": 32, "gpnn": 128}
        assert plain.hidden == widths.get(name, 64)
    assert bvat.preset("cora", "obvat", model=name, beta=9.0).beta == 9
    MODELS[name].build(plain.of_model, FEATURES, CLASSES)


@every_model
@pytest.mark.parametrize("wrong", [{"dropout": 1.0}, {"layers": 0}])
def test_impossible_sizes_are_refused(name: str, wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsError):
        MODELS[name].load()(FEATURES, CLASSES, **wrong)


def test_gat_names_its_heads_when_the_width_does_not_fit() -> None:
    with pytest.raises(SettingsError, match="multiple of the 8 attention heads, not 12"):
        MODELS["gat"].load()(FEATURES, CLASSES, hidden=12)
