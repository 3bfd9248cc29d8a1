"""Modules of one's own: trained like bvat's models, with the numbers of a loop written by hand."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.base import clone
from torch import nn

import bvat
import own_models
from bvat.engine.draws import as_draws
from bvat.errors import DataError, SettingsError
from bvat.inference import open_run
from bvat.models.own import OwnModule
from bvat.perturb.methods import METHODS
from bvat.plugins import imported
from bvat.training.callbacks import Callback
from cli_helpers import bvat as command
from own_models import Curved, Net, deep, yes_or_no

PLAIN: dict[str, Any] = {"decay": "all", "lr": 0.02, "weight_decay": 5e-4}


@pytest.fixture
def run(small: bvat.Graph, tmp_path: Path) -> Path:
    return bvat.run(small, "vat", folder=tmp_path / "run", model="own_models:deep", epochs=6).path


def by_hand(
    graph: bvat.Graph,
    model: nn.Module,
    step: Callable[[torch.Tensor], torch.Tensor],
    draws: Any,
    epochs: int,
) -> dict[str, torch.Tensor]:
    """Train as torch's documentation does: bvat only says with which seed dropout is drawn."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
    x, edges = graph.as_data.x, graph.as_data.edge_index
    for _ in range(epochs):
        model.train()
        torch.manual_seed(draws.seed())
        loss = step(model(x, edges))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.state_dict()


def same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("method", ["none", "vat"])
def test_the_numbers_are_those_of_a_loop_written_by_hand(small: bvat.Graph, method: str) -> None:
    """With dropout, batch normalisation and a perturbation: same draws, same weights and statistics."""
    settings = bvat.Settings(method, Net, epochs=15, **PLAIN)
    trained = bvat.train(small, settings, seed=3)
    torch.manual_seed(3)
    model = Net(small.num_features, small.num_classes)
    draws = as_draws(torch.Generator().manual_seed(3 + 2**32))
    regulariser = bvat.VAT(generator=draws)

    def step(logits: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(logits[small.train], small.labels[small.train])
        if method == "none":
            return loss
        outcome = regulariser(model, small, logits)
        return loss + 0.3 * bvat.entropy(logits) + outcome.loss

    expected = by_hand(small, model, step, draws, 15)
    same(trained.weights, expected)
    assert float(trained.weights["norm.running_mean"].abs().max()) > 0
    model.eval()
    right = model(small.as_data.x, small.as_data.edge_index).argmax(1)[small.test] == small.labels[small.test]
    assert trained.last["test"] == pytest.approx(100 * float(right.double().mean()))


def test_one_logit_is_trained_as_by_binary_cross_entropy() -> None:
    graph = bvat.synthetic_graph(nodes=120, edges=300, features=40, classes=2, val=30, test=40)
    trained = bvat.train(graph, bvat.Settings("none", yes_or_no, epochs=15, **PLAIN), seed=1)
    torch.manual_seed(1)
    target = graph.labels[graph.train].float()

    def step(logits: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(logits[graph.train, 0], target)

    draws = as_draws(torch.Generator().manual_seed(1 + 2**32))
    same(trained.weights, by_hand(graph, Net(graph.num_features, 1), step, draws, 15))
    assert trained.last["test"] > 60


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_one(small: bvat.Graph, method: str) -> None:
    few = {"count": 5} if method == "sbvat" else {}
    trained = bvat.train(small, bvat.preset("", method, model=deep, epochs=30, lr=0.05, **few))
    losses = [row["supervised"] for row in trained.metrics]
    assert losses[-1] < 0.7 * losses[0]
    assert trained.metrics[-1]["r_vadv"] >= 0


def test_scaled_features_are_undone_in_the_first_layer(small: bvat.Graph) -> None:
    for scale in ("unit", "columns"):
        trained = bvat.train(small, bvat.Settings("none", Net, epochs=5, scale=scale, **PLAIN))
        model = OwnModule(Net(small.num_features, small.num_classes))
        model.load_state_dict(trained.weights)
        right = bvat.predict(model, small).argmax(1)[small.test] == small.labels[small.test]
        assert trained.last["test"] == pytest.approx(100 * float(right.double().mean())), scale
    settings = bvat.Settings("vat", Curved, epochs=3, scale="unit", **PLAIN)
    with pytest.raises(
        SettingsError, match=r"first layer is linear .*no Linear layer reads x.* use scale 'none'"
    ):
        bvat.train(small, settings)
    with pytest.raises(SettingsError, match="use decay 'all'"):
        bvat.train(small, bvat.Settings("vat", Curved, epochs=3))
    trained = bvat.train(small, bvat.Settings("vat", Curved, epochs=3, **PLAIN))
    assert trained.space == "dense"
    assert trained.events == [
        "x itself is perturbed, which takes N x D numbers, because no Linear layer reads x directly"
    ]


def test_a_module_is_copied_and_gets_its_weights_back(small: bvat.Graph) -> None:
    module = Net(small.num_features, small.num_classes)
    before = copy.deepcopy(module.state_dict())
    trained = bvat.train(small, bvat.preset("", "vat", epochs=8), model=module)
    same(module.state_dict(), before)
    module.load_state_dict(trained.weights)
    assert not torch.equal(module.first.weight, before["first.weight"])
    assert bvat.train(small, model=module).selected["test"] > 60  # without settings: the defaults


class Stop(Callback):
    def on_epoch(self, state: Any, row: dict[str, float]) -> None:
        if state.epoch == 5:
            raise KeyboardInterrupt


def test_a_resumed_training_is_the_same_bit_for_bit(small: bvat.Graph, tmp_path: Path) -> None:
    settings = bvat.preset("", "vat", model=Net, epochs=12)
    whole, path = bvat.train(small, settings), tmp_path / "checkpoint.safetensors"
    with pytest.raises(KeyboardInterrupt):
        bvat.train(small, settings, checkpoint=path, checkpoint_every=3, callbacks=[Stop()])
    resumed = bvat.train(small, settings, checkpoint=path, resume=True)
    assert all(torch.equal(resumed.weights[name], whole.weights[name]) for name in whole.weights)


def test_results_of_other_code_are_not_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    source = Path(own_models.__file__).read_text("utf-8")
    found = []
    for text in (
        source,
        source,
        source.replace("nn.Linear(8, classes)", "nn.Linear(8, classes, bias=False)"),
    ):
        (tmp_path / "changing.py").write_text(text)
        found.append(bvat.Settings("vat", "changing:Net").identity())
    assert found[0] == found[1] != found[2]
    assert "code" not in bvat.Settings("vat").identity()


def test_a_run_folder_is_predicted_and_audited_with_its_model(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert json.loads((run / "settings.json").read_text())["settings"]["model"] == "own_models:deep"
    named = ["--model", "own_models:deep"]
    code, _, err = command(["predict", str(run), "--out", str(tmp_path / "p.csv"), *named], capsys)
    assert (code, err) == (0, "")
    opened = open_run(run, [deep])
    p = opened.classifier(opened.graph()).probabilities(opened.graph())
    table = np.loadtxt(tmp_path / "p.csv", delimiter=",", skiprows=1, usecols=(3, 4, 5))
    np.testing.assert_allclose(table, p.numpy(), atol=1e-5)
    audit = ["audit", str(run), "--out", str(tmp_path / "a.csv"), "--nodes", "5", *named]
    code, out, _ = command(audit, capsys)
    assert code == 0
    assert "5 nodes, epsilon 0.03" in out
    for asked in (
        ["explain", str(run), "--node", "0"],
        ["export", str(run), "--out", str(tmp_path / "e.safetensors")],
    ):
        code, _, err = command([*asked, *named], capsys)
        assert code == 2
        assert "own_models:deep" in err


@pytest.mark.slow
def test_no_command_imports_what_only_a_file_names(run: Path, tmp_path: Path, small_file: Path) -> None:
    """Each command ends with one sentence, and the module has left no trace."""
    mark, here = tmp_path / "mark", str(Path(own_models.__file__).parent)
    env = {**os.environ, "OWN_MODELS_MARK": str(mark), "OMP_NUM_THREADS": "1"}
    path = tmp_path / "saved.safetensors"
    graph = bvat.load(small_file)
    bvat.NodeClassifier("none", model=Net, epochs=2).fit(graph).save(path)
    load = [sys.executable, "-c", f"import bvat; bvat.NodeClassifier.load({str(path)!r})"]
    bvat_command = [sys.executable, "-m", "bvat"]
    cases = [
        [*bvat_command, "predict", str(run), "--out", str(tmp_path / "p.csv")],
        [*bvat_command, "predict", str(run), "--out", str(tmp_path / "p.csv"), "--model", "own_models:Net"],
        [*bvat_command, "audit", str(run), "--out", str(tmp_path / "a.csv")],
        [*bvat_command, "review", str(run)],
        [*bvat_command, "runs", "show", str(run)],
        [*bvat_command, "train", str(small_file), "--settings", str(run), "--out", str(tmp_path / "new")],
        load,
    ]
    for case in cases:
        done = subprocess.run(case, cwd=here, env=env, capture_output=True, text=True, timeout=120)
        if "show" not in case:
            assert "code that bvat does not import unasked" in done.stderr, case
            assert case is load or done.returncode == 2
        assert not mark.exists(), case
    done = subprocess.run(
        [*cases[0], "--model", "own_models:deep"], cwd=here, env=env, capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert mark.exists()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            "own_models:Nothing",
            "own_models:Nothing cannot be imported .*no attribute 'Nothing'.*check the name",
        ),
        ("no_such_module:Net", "no_such_module:Net cannot be imported .*No module named"),
        ("own_models", "model must be one of gcn, .*, or module:Class of your own, not 'own_models'"),
        (
            "own_models:NoSizes",
            r"own_models:NoSizes is called with \(in_features, classes\), which it does not",
        ),
        ("own_models:yes_or_no", "own_models:Net returns 1 logits per node, but there are 3 classes"),
        ("os:getcwd", "is called with"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    small_file: Path, tmp_path: Path, capsys: Any, model: str, message: str
) -> None:
    train = ["train", str(small_file), "--model", model, "--method", "none", "--epochs", "2"]
    code, _, err = command([*train, "--out", str(tmp_path / "run")], capsys)
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert re.search(message, err), err


def test_an_error_while_a_module_is_imported_names_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_models.py").write_text("import torch\n\nNet = undefined\n")
    with pytest.raises(SettingsError, match=r"NameError in .*broken_models.py, line 3: name 'undefined'"):
        bvat.Settings("vat", "broken_models:Net").model_row.load()


def test_a_run_needs_a_model_that_can_be_imported_again(small: bvat.Graph, tmp_path: Path) -> None:
    for model in (Net(40, 3), lambda features, classes: Net(features, classes)):
        with pytest.raises(
            SettingsError, match=r"needs a model that can be imported again|cannot be imported"
        ):
            bvat.run(small, "vat", folder=tmp_path / "run", model=model, epochs=2)
    assert not (tmp_path / "run").exists()


def test_the_estimator_takes_modules_and_functions(small: bvat.Graph, tmp_path: Path) -> None:
    first = clone(bvat.NodeClassifier("vat", model=deep, epochs=8)).fit(small)
    module = bvat.NodeClassifier("vat", model=Net(40, 3), epochs=8).fit(small)
    assert module.settings_.model == "own_models:Net"
    assert module.classes_.size == 3
    first.save(tmp_path / "c.safetensors")
    with pytest.raises(DataError, match="own_models:deep, code that bvat does not import unasked"):
        bvat.NodeClassifier.load(tmp_path / "c.safetensors")
    for model in (deep, "own_models:deep"):
        again = bvat.NodeClassifier.load(tmp_path / "c.safetensors", model=model)
        assert np.array_equal(again.predict_proba(small), first.predict_proba(small))
        assert again.get_params()["model"] == model


def test_cross_validation_takes_the_place_of_validation_nodes(small: bvat.Graph) -> None:
    all_train = replace(small, train=torch.cat([small.train, small.val]), val=small.val[:0])
    fitted = bvat.NodeClassifier("vat", model=Net, epochs=4).fit(all_train)
    assert fitted.cross_validation_ is not None
    assert fitted.settings_.model == "own_models:Net"


@pytest.mark.slow
def test_compared_and_tuned(small_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    methods = "gcn,own_models:Net,own_models:Net/vat"
    asked = [
        "--methods",
        methods,
        "--labels",
        "3",
        "--val",
        "20",
        "--splits",
        "2",
        "--epochs",
        "4",
        "--jobs",
        "1",
    ]
    code, out, _ = command(
        ["compare", str(small_file), *asked, "--out", str(tmp_path / "c"), "--json"], capsys
    )
    assert code == 0
    found = json.loads(out)["variants"]
    assert [found[name]["title"] for name in methods.split(",")] == ["GCN", "Net", "Net + VAT"]
    sizes = [
        "--trials",
        "1",
        "--seeds",
        "1",
        "--finalists",
        "1",
        "--check-seeds",
        "1",
        "--epochs",
        "4",
        "--jobs",
        "1",
    ]
    tune = ["tune", str(small_file), "--method", "vat", "--model", "own_models:Net", *sizes]
    code, out, _ = command([*tune, "--out", str(tmp_path / "t"), "--json"], capsys)
    assert code == 0
    assert json.loads(out)["fixed"]["model"] == "own_models:Net"


def test_settings_keep_the_model_that_was_given(small: bvat.Graph) -> None:
    module = Net(40, 3)
    settings = bvat.Settings("vat", module, epochs=3)
    for changed in (settings.replace(epochs=4), replace(settings, epochs=4), settings.replace(method="none")):
        assert changed.own is module
        assert changed.model == "own_models:Net"
    assert replace(settings, model="gcn").own is settings.replace(model="gcn").own is None
    assert settings == bvat.Settings("vat", "own_models:Net", epochs=3)
    assert bvat.Settings(**settings.as_dict()) == settings
    wrapped = bvat.wrap(module, depth=1)
    assert bvat.Settings("vat", wrapped).model == "own_models:Net"
    assert bvat.train(small, model=wrapped, settings=bvat.preset("", "sbvat", epochs=3, count=3)).metrics


@pytest.mark.parametrize(
    ("model", "used"),
    [
        ("gcn", True),
        ("mlp", True),
        ("gat", False),
        ("sage", True),
        (Net, False),
        (own_models.Weighted, True),
    ],
)
def test_edge_weights_are_used_or_not_and_then_that_is_said(
    small: bvat.Graph, model: Any, used: bool
) -> None:
    edges, features, labels = bvat.to_scipy(small)
    splits = {name: getattr(small, name) for name in ("train", "val", "test")}
    weighted = bvat.from_scipy(2.5 * edges, features, labels, **splits).with_engine("tensor")
    name = model if isinstance(model, str) else f"own_models:{model.__name__}"
    expected = [] if used else [f"{name} does not use the edge weights of graph"]
    assert bvat.train(weighted, bvat.preset("", "none", model=model, epochs=2)).events == expected
    assert bvat.train(small, bvat.preset("", "none", model=model, epochs=2)).events == []


def test_only_models_that_the_user_names_are_looked_for_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "lies_here.py").write_text("Net = int\n")
    with pytest.raises(SettingsError, match="No module named 'lies_here'"):
        imported("lies_here:Net")  # the home of a plug-in
    assert bvat.Settings("vat", "lies_here:Net").model_row.load() is int
