"""The automatic choice of a method."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bvat.cli.main import main
from bvat.data import save_graph, synthetic_graph
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.inference.estimator import NodeClassifier
from bvat.store.store import RunSpec
from bvat.tuning import auto
from bvat.tuning.auto import candidates_for, choose, parse_budget
from bvat.tuning.cross_validation import Choice
from bvat.tuning.variants import CANDIDATES, Variant

QUICK = {"epochs": 16, "hidden": 16, "patience": 0}


@pytest.fixture(scope="module")
def graph() -> Graph:
    drawn = synthetic_graph(400, 1200, features=60, classes=3, train_per_class=8, val=120, test=100, seed=3)
    return drawn.with_engine("tensor")


def test_variants() -> None:
    assert Variant.parse("vat") == Variant("gcn", "vat")
    assert Variant.parse("APPNP") == Variant("appnp", "none")
    assert Variant.parse("appnp/vat").title == "APPNP + VAT"
    assert [Variant.parse(name).name for name in CANDIDATES] == list(CANDIDATES)
    for wrong in ("", "cubic", "appnp/cubic", "cubic/vat", "vat/appnp"):
        with pytest.raises(SettingsError, match="there is no method"):
            Variant.parse(wrong)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("2m", 120), ("1.5h", 5400), ("7", 7)])
def test_budgets(text: str, seconds: float) -> None:
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "-1m", "2 days", "nan", "1e9h"])
def test_bad_budgets(text: str) -> None:
    with pytest.raises(SettingsError, match="a budget is a time such as"):
        parse_budget(text)


def test_what_is_clearly_behind_is_given_up_and_test_labels_are_never_seen(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Graph] = []
    original = auto.blind

    def watched(given: Graph) -> Graph:
        seen.append(original(given))
        return seen[-1]

    monkeypatch.setattr(auto, "blind", watched)
    choice = choose(graph, budget=300, candidates=("gcn", "mlp", "vat"), overrides=QUICK)
    (known,) = seen
    assert not known.test.numel()
    assert bool((known.labels[graph.test] == -1).all())
    counts = {entry["name"]: len(entry["val"]) for entry in choice.report["tried"]}
    assert counts["mlp"] == 1, "what does not see the edges is given up after one repetition"
    outcomes = {entry["name"]: entry["outcome"] for entry in choice.report["tried"]}
    assert outcomes["mlp"] == "1 of 3 seeds, 120 nodes: given up, clearly behind"
    assert max(counts.values()) == 3
    best = max(choice.report["tried"], key=lambda e: (len(e["val"]), sum(e["val"]) / len(e["val"])))
    assert choice.report["chosen"] == best["name"]
    assert best["outcome"] == "chosen"
    assert best["title"] in choice.report["text"]
    again = Choice.read(json.loads(json.dumps(choice.as_dict())), graph)
    assert again.settings == choice.settings


def test_without_time_the_first_candidate_is_the_answer(graph: Graph) -> None:
    choice = choose(graph, budget=1e-6, candidates=("gcn", "vat"), overrides=QUICK)
    assert choice.report["chosen"] == "gcn"
    assert [entry["outcome"] for entry in choice.report["tried"]] == [
        "chosen",
        "not compared: the time was over",
    ]
    assert "over 1 of 3 seeds. No other candidate was compared." in choice.report["text"]
    assert choice.report["text"].endswith("The time was over before 1 of 2 candidates were compared.")


def test_without_time_the_first_candidate_has_all_folds(graph: Graph) -> None:
    few = replace(graph, val=graph.val[:6])
    choice = choose(few, budget=1e-6, candidates=("gcn", "vat"), overrides=QUICK)
    first, second = choice.report["tried"]
    assert (first["name"], first["unit"], len(first["val"]), first["nodes"]) == ("gcn", "folds", 5, 30)
    assert (second["val"], second["outcome"]) == ([], "not compared: the time was over")
    assert "on 30 nodes) over 5 of 5 folds. No other candidate was compared." in choice.report["text"]


def test_ties_cannot_be_told_apart(graph: Graph) -> None:
    """A plain GCN by two names: equal on every fold."""
    few = replace(graph, val=graph.val[:6])
    still = {**QUICK, "alpha": 0.0, "beta": 0.0}
    choice = choose(few, budget=300, candidates=("gcn", "vat", "consistency"), overrides=still)
    gcn, vat, consistency = choice.report["tried"]
    assert choice.report["chosen"] == "gcn"
    assert gcn["val"] == vat["val"] == consistency["val"]
    assert vat["outcome"] == "5 of 5 folds, 30 nodes: cannot be told apart from it"
    assert "; GCN + VAT, GCN + consistency cannot be told apart from it." in choice.report["text"]


def test_partial_folds_do_not_win(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is over in the second fold of the second candidate."""
    few = replace(graph, val=graph.val[:6])
    _stop_the_clock(monkeypatch, lambda spec: spec.settings.method == "vat" and spec.dataset != "0")
    choice = choose(few, budget=300, candidates=("gcn", "vat"), overrides=QUICK)
    assert choice.report["chosen"] == "gcn"
    assert choice.report["tried"][1]["outcome"] == "1 of 5 folds, 6 nodes: the time was over"


def test_a_seed_that_not_all_candidates_have_does_not_count(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is over after the second seed of the first candidate, which would win by having more."""
    _stop_the_clock(monkeypatch, lambda spec: spec.settings.method == "vat" and spec.seed == 1)
    choice = choose(graph, budget=300, candidates=("gcn", "vat"), overrides=QUICK)
    assert [len(entry["val"]) for entry in choice.report["tried"]] == [1, 1]
    outcomes = sorted(entry["outcome"] for entry in choice.report["tried"])
    assert outcomes == ["1 of 3 seeds, 120 nodes: cannot be told apart from it", "chosen"]


def _stop_the_clock(monkeypatch: pytest.MonkeyPatch, at: Callable[[RunSpec], bool]) -> None:
    """Let the time be over when a run is to start."""
    original, now, over = auto.RunStore.run, time.time, []

    def run(store: Any, spec: RunSpec, *rest: Any) -> Any:
        if at(spec):
            over.append(spec)
            raise auto._OutOfTime
        return original(store, spec, *rest)

    monkeypatch.setattr(auto.RunStore, "run", run)
    monkeypatch.setattr(auto.time, "time", lambda: now() + 1e6 * bool(over))


def test_few_labels_are_cross_validated_and_all_used(graph: Graph) -> None:
    few = replace(graph, val=graph.val[:6])
    choice = choose(few, budget=300, candidates=("gcn", "vat"), overrides=QUICK)
    assert "5-fold cross-validation over the 30 labelled nodes" in choice.report["validation"]
    pool = torch.cat([few.train, few.val]).sort().values
    assert torch.equal(choice.graph.train, pool)
    assert choice.estimate is not None
    assert choice.estimate["nodes"] == 30
    assert not choice.graph.val.numel()
    assert choice.settings.select == "last"
    assert choice.settings.epochs <= 16
    assert torch.equal(Choice.read(choice.as_dict(), few).graph.train, pool)


def test_a_model_that_is_asked_for_limits_the_candidates() -> None:
    assert candidates_for({"model": "sage"}) == ("sage", "sage/vat", "sage/consistency")
    assert candidates_for({"hidden": 8}) == CANDIDATES


def test_estimator(graph: Graph) -> None:
    classifier = NodeClassifier("auto", budget="1s", epochs=12, hidden=16).fit(graph)
    assert classifier.choice_ is not None
    assert classifier.settings_ == classifier.choice_.settings
    assert classifier.score(graph) > 0.3
    with pytest.raises(SettingsError, match="a budget is a time"):
        NodeClassifier("auto", budget="soon").fit(graph)


def test_train_chooses_for_a_graph_without_a_preset(
    graph: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_graph(graph, tmp_path / "mine.npz")
    out = tmp_path / "run"
    command = ["train", str(tmp_path / "mine.npz"), "--budget", "1s", "--epochs", "12", "--jobs", "1"]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--out", str(out), "--json"])
    assert ended.value.code == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["auto"]["chosen"] in CANDIDATES
    assert json.loads((out / "auto.json").read_text())["report"] == summary["auto"]
    assert "How the method was chosen" in (out / "report.html").read_text()
    with pytest.raises(SystemExit) as ended:
        main([*command, "--out", str(out), "--resume", "--seeds", "2", "--json"])
    assert ended.value.code == 0
    again = json.loads(capsys.readouterr().out)
    assert again["auto"] == summary["auto"], "the choice is made once"
    assert again["seeds"] == 2
    for wrong in (["--budget", "soon"], ["--method", "cubic"]):
        with pytest.raises(SystemExit) as ended:
            main([*command, *wrong, "--out", str(tmp_path / "other")])
        assert ended.value.code == 2
        assert not (tmp_path / "other").exists()
