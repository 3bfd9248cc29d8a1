"""The search for presets: it knows no test label, goes on where it was, and its results become presets."""

from __future__ import annotations

import json
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
import torch

from bvat.cli.main import main
from bvat.cli.options import read_settings_file, read_tuned
from bvat.data import save_graph
from bvat.errors import SettingsError
from bvat.graph import UNKNOWN, Graph
from bvat.models.table import MODELS
from bvat.perturb.methods import METHODS
from bvat.report.tune_page import tune_page
from bvat.store.claim import share
from bvat.training.settings import Settings, preset
from bvat.tuning import tune as tuning
from bvat.tuning.space import STARTS, parameters, search_space, suggest, tuned_settings
from bvat.tuning.storage import give_up, halving
from bvat.tuning.tune import TuningPlan, blind, tune
from presets import PRESETS, read_tuning_results, with_results


def small_plan(**rest: Any) -> TuningPlan:
    options: dict[str, Any] = {"trials": 3, "seeds": 2, "finalists": 2, "check_seeds": 2}
    return TuningPlan("small", "obvat", overrides={"epochs": 3}, **{**options, **rest})


def test_blind_graph_has_no_test_labels(small: Graph) -> None:
    seen = blind(small)
    assert not seen.test.numel()
    known = torch.cat([small.train, small.val])
    assert torch.equal(seen.labels[known], small.labels[known])
    others = torch.ones(small.num_nodes, dtype=torch.bool)
    others[known] = False
    assert others.any()
    assert (seen.labels[others] == UNKNOWN).all()


def test_a_search_gives_the_same_whatever_the_test_labels_are(small: Graph, tmp_path: Path) -> None:
    labels = small.labels.clone()
    labels[small.test] = (labels[small.test] + 1) % small.num_classes
    first = tune(small_plan(), small, tmp_path / "true", jobs=1)
    second = tune(small_plan(), replace(small, labels=labels), tmp_path / "false", jobs=1)
    assert first == second
    results = [json.loads(path.read_text()) for path in (tmp_path / "true").rglob("seed-*/result.json")]
    assert results
    assert all(result["last"]["test"] is None for result in results)
    assert '"test": 0' in (tmp_path / "true" / "small-obvat.json").read_text()


def test_a_trial_refuses_a_graph_with_test_nodes(small: Graph, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tuning, "blind", lambda graph: graph)
    with pytest.raises(AssertionError, match="must not see test nodes"):
        tune(small_plan(), small, tmp_path, jobs=1)


def test_a_search_goes_on_until_it_has_its_trials(small: Graph, tmp_path: Path) -> None:
    first = tune(small_plan(trials=2), small, tmp_path, jobs=1)
    assert [trial["number"] for trial in first["trials"]] == [0, 1]
    runs = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("seed-*/result.json")}
    assert runs
    more = tune(small_plan(trials=3), small, tmp_path, jobs=1)
    assert more["trials"][:2] == first["trials"]
    assert len(more["trials"]) == 3
    assert {path: path.stat().st_mtime_ns for path in runs} == runs
    assert tune(small_plan(trials=3), small, tmp_path, jobs=1) == more


def test_a_trial_that_was_killed_is_done_again(small: Graph, tmp_path: Path) -> None:
    count = len(STARTS) + 4
    whole = tune(small_plan(trials=count), small, tmp_path / "whole", jobs=1)
    first = tune(small_plan(trials=1), small, tmp_path / "killed", jobs=1)
    storage = tuning.open_journal(tmp_path / "killed" / "work" / "small-obvat.journal")
    (study,) = [
        optuna.load_study(study_name=name, storage=storage) for name in optuna.get_all_study_names(storage)
    ]
    base = preset("small", "obvat").as_dict()
    for _ in range(len(STARTS) + 2):  # the other starting points, and two that are drawn
        suggest(study.ask(), small_plan().space, base)
    with share(tmp_path / "killed"):  # another process may still work at them
        assert tune(small_plan(trials=1), small, tmp_path / "killed", jobs=1) == first
        states = [trial.state.name for trial in study.get_trials()]
        assert states.count("RUNNING") == len(STARTS) + 2
    assert tune(small_plan(trials=count), small, tmp_path / "killed", jobs=1) == whole


def test_a_torn_journal_line_is_skipped(small: Graph, tmp_path: Path) -> None:
    whole = tune(small_plan(trials=2), small, tmp_path / "whole", jobs=1)
    text = (tmp_path / "whole" / "work" / "small-obvat.journal").read_bytes()
    lines = text.splitlines(keepends=True)
    for number, cut in enumerate([b"{", lines[0][:-9], text[:-1], text[:-40], text + lines[-1][:25]]):
        out = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole" / "work" / "runs", out / "work" / "runs")
        (out / "work" / "small-obvat.journal").write_bytes(cut)
        again = tune(small_plan(trials=2), small, out, jobs=1)
        assert again == whole
        assert tune(small_plan(trials=2), small, out, jobs=1) == whole  # the torn line is in the middle now


@pytest.mark.parametrize("content", [None, "Dear diary\n", '{"other": 1}\n'])
def test_a_journal_that_cannot_be_used(content: str | None, small: Graph, tmp_path: Path) -> None:
    path = tmp_path / "work" / "small-obvat.journal"
    path.parent.mkdir()
    path.mkdir() if content is None else path.write_text(content)
    with pytest.raises(SettingsError, match=r"small-obvat.journal is not a .*: remove it, or use") as caught:
        tune(small_plan(), small, tmp_path, jobs=1)
    assert "\n" not in str(caught.value)
    assert content is None or path.read_text() == content


def test_an_interrupted_trial_is_done_again(small: Graph, tmp_path: Path, monkeypatch: Any) -> None:
    whole = tune(small_plan(trials=6), small, tmp_path / "whole", jobs=1)
    monkeypatch.setattr(tuning.RunStore, "run", interrupted := _interrupt_every_third(tuning.RunStore.run))
    for _ in range(30):
        try:
            found = tune(small_plan(trials=6), small, tmp_path / "again", jobs=1)
            break
        except KeyboardInterrupt:
            pass
    assert interrupted.calls > 10
    assert found == whole


def _interrupt_every_third(run: Any) -> Any:
    def method(*arguments: Any, **options: Any) -> Any:
        method.calls += 1
        if method.calls % 3 == 0:
            raise KeyboardInterrupt
        return run(*arguments, **options)

    method.calls = 0  # type: ignore[attr-defined]
    return method


def test_the_first_trial_is_the_preset_and_the_finalists_have_other_seeds(
    small: Graph, tmp_path: Path
) -> None:
    result = tune(small_plan(trials=2), small, tmp_path, jobs=1)
    today = preset("small", "obvat").as_dict()
    within = {name.split(".")[0] for name in parameters(today, search_space("obvat"))}
    assert "alpha" in within
    first = result["trials"][0]["settings"]
    assert {name: first[name] for name in within} == {name: today[name] for name in within}
    assert result["finalists"][0]["from"] == "preset"
    assert not set(result["trial_seeds"]) & set(result["check_seeds"])
    best = max(entry["val"]["mean"] for entry in result["finalists"])
    assert result["val"]["mean"] == best
    assert Settings(**{**today, **result["fixed"], **result["chosen"]})
    written = tomllib.loads((tmp_path / "small-obvat.toml").read_text())
    assert written == {"method": "obvat", "epochs": 3, **result["chosen"]}


def test_presets_are_made_from_results(tmp_path: Path) -> None:
    chosen = {"alpha": 0.3, "epsilon": 0.012, "masks": "reuse", "keep_moments": True, "steps": 2}
    for dataset, method in (("cora", "sbvat"), ("new", "obvat")):
        content = {"dataset": dataset, "method": method, "chosen": chosen}
        (tmp_path / f"{dataset}-{method}.json").write_text(json.dumps(content))
    before = PRESETS.read_text("utf-8")
    text = with_results(before, read_tuning_results(tmp_path))
    made, was = tomllib.loads(text), tomllib.loads(before)
    assert made["dataset"]["cora"]["sbvat"] == {**was["dataset"]["cora"]["sbvat"], **chosen}
    assert made["dataset"]["new"]["obvat"] == chosen
    assert {k: v for k, v in made["dataset"]["cora"].items() if k != "sbvat"} == {
        k: v for k, v in was["dataset"]["cora"].items() if k != "sbvat"
    }
    assert {k: v for k, v in made.items() if k != "dataset"} == {
        k: v for k, v in was.items() if k != "dataset"
    }
    assert made["dataset"]["nell"] == was["dataset"]["nell"]
    assert before.splitlines()[0] in text
    assert with_results(text, read_tuning_results(tmp_path)) == text
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(SettingsError, match="not a result of bvat tune"):
        read_tuning_results(tmp_path)
    with pytest.raises(SettingsError, match="no result"):
        read_tuning_results(tmp_path / "nothing")


def test_presets_keep_what_a_search_did_not_choose_and_comments() -> None:
    before = """[dataset.a]

[dataset.a.obvat]
search = "fast"
step_size = 0.1
beta = 0.1

# why b is as it is
[dataset.b]
epochs = 3
"""
    text = with_results(before, {("a", "obvat"): {"beta": 2.0}})
    assert tomllib.loads(text)["dataset"]["a"]["obvat"] == {"search": "fast", "step_size": 0.1, "beta": 2.0}
    assert "# why b is as it is\n" in text
    assert text.index("# why") < text.index("[dataset.b]")


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("dataset", ["cora", "citeseer", "pubmed", "nell"])
def test_spaces_hold_only_settings(method: str, dataset: str) -> None:
    space = search_space(method)
    current = preset(dataset, method)
    assert tuned_settings(space) <= set(current.as_dict())
    params = parameters(current.as_dict(), space)
    assert set(params) <= {
        *tuned_settings(space),
        *(f"{n}.{v}" for n in tuned_settings(space) for v in ("adam", "fast")),
    }
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.enqueue_trial(params)
    for _ in range(3):  # the preset, as far as it lies in the space, then others
        values = suggest(study.ask(), space, current.as_dict())
        assert Settings(**{**current.as_dict(), **values})
        inside = parameters({**current.as_dict(), **values}, space)
        assert {name.split(".")[0] for name in inside} == set(values)


@pytest.mark.parametrize("model", list(MODELS))
def test_spaces_of_models_hold_only_settings(model: str) -> None:
    space, today = search_space("none", model), preset("", "none", model=model).as_dict()
    assert set(space) <= set(today)
    assert "lr" in space
    assert ("hidden" in space) == ("hidden" in today)
    trial = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0)).ask()
    assert Settings(**{**today, **suggest(trial, space, today)})


def test_half_of_the_trials_go_on(small: Graph, tmp_path: Path, monkeypatch: Any) -> None:
    """Of trials in falling order only the first passes: each of the others stops after its first seed."""
    seeds: dict[float, list[int]] = {}

    def run(store: Any, spec: Any, report: Any = None) -> dict[str, Any]:
        seeds.setdefault(spec.settings.lr, []).append(spec.seed)
        return {"selected": {"val": 100 * spec.settings.lr + 0.001 * spec.seed}}

    monkeypatch.setattr(tuning.RunStore, "run", run)
    monkeypatch.setattr(tuning.RunStore, "run_all", lambda *_: 0)
    monkeypatch.setattr(tuning.RunStore, "results", lambda store, specs: [store.run(spec) for spec in specs])
    values = iter([0.05, 0.04, 0.03, 0.02, 0.01])
    monkeypatch.setattr(tuning, "suggest", lambda *_: {"lr": next(values)})
    plan = TuningPlan("small", "none", trials=5, seeds=5, finalists=1, check_seeds=1)
    result = tune(plan, small, tmp_path, jobs=1)
    assert [trial["state"] for trial in result["trials"]] == ["complete", *["pruned"] * 4]
    assert [seeds[lr] for lr in (0.04, 0.03, 0.02)] == [[0]] * 3
    assert [seed for seed in seeds[0.05] if seed < 1000] == [0, 1, 2, 3, 4]
    assert result["chosen"] == {"lr": 0.05}


def test_trials_that_were_given_up_do_not_compete() -> None:
    study = optuna.create_study(direction="maximize", pruner=halving())

    def begun(value: float) -> optuna.Trial:
        trial = study.ask()
        trial.report(value, 1)
        return trial

    first = begun(0.5)
    assert not first.should_prune()
    study.tell(first, 0.5)
    for _ in range(3):  # each reached its first rung, and was then interrupted
        lost = begun(0.9)
        assert not lost.should_prune()
        give_up(study.get_trials(deepcopy=False)[lost.number], study._storage)
    assert not begun(0.6).should_prune()  # better than the only one that counts
    assert begun(0.1).should_prune()


def test_a_plain_model_is_tuned_and_its_page_written(
    small: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = TuningPlan(
        "small", "none", "sgc", trials=9, seeds=1, finalists=1, check_seeds=1, overrides={"epochs": 12}
    )
    result = tune(plan, small, tmp_path, jobs=1)
    assert set(result["chosen"]) == {"lr", "weight_decay", "dropout"}
    written = tomllib.loads((tmp_path / "small-none-sgc.toml").read_text())
    assert written == {"method": "none", "model": "sgc", "epochs": 12, **result["chosen"]}
    assert tune(plan, small, tmp_path, jobs=1) == result  # with the same importance
    shares = result["importance"]
    assert set(shares) == set(result["chosen"])
    assert sum(shares.values()) == pytest.approx(1, abs=0.01)
    page = tune_page(result)
    assert "Settings of SGC on small" in page
    assert page.count("<svg") == 5  # importance, trials, and one per setting
    assert "too few complete trials" in tune_page({**result, "importance": {}})
    for path in (tmp_path / "small-none-sgc.toml", tmp_path / "small-none-sgc.json"):
        found = read_settings_file(path)
        assert found.items() >= {"method": "none", "model": "sgc", **result["chosen"]}.items()
        assert Settings(**found).lr == result["chosen"]["lr"]
    assert read_tuned(tmp_path, ["small"], ["gcn", "sgc"])[1].keys() == {("small", "sgc")}


def test_bad_input_is_one_sentence(small: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_graph(replace(small, val=small.val[:0]), tmp_path / "g.npz")
    for options, message in (
        (["--method", "auto"], "nothing to tune in 'auto': use one of none, consistency"),
        (["--model", "cubic"], "model must be one of"),
        (["--method", "none"], "has no validation nodes, which a search needs: hold some out"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["tune", str(tmp_path / "g.npz"), *options, "--out", str(tmp_path / "out")])
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert message in said
        assert sum("note:" not in line for line in said.splitlines()) == 1


@pytest.mark.slow
def test_command(small_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--trials", "2", "--seeds", "1", "--finalists", "1", "--check-seeds", "1", "--epochs", "2"]
    options += ["--jobs", "2", "--json"]
    with pytest.raises(SystemExit) as ended:
        main(["tune", str(small_file), "--method", "vat", *options, "--out", str(tmp_path)])
    assert ended.value.code == 0
    result = json.loads(capsys.readouterr().out)
    stored = json.loads((tmp_path / "small-vat.json").read_text())
    assert stored.pop("checksum").startswith("sha256:")
    assert result == stored
    assert {trial["number"] for trial in result["trials"]} == {0, 1}
    with pytest.raises(SystemExit) as ended:
        main(["tune", str(small_file), "--method", "lp", "--out", str(tmp_path)])
    assert ended.value.code == 2
    assert "nothing to tune in 'lp'" in capsys.readouterr().err


def test_without_optuna_the_remedy_is_named(monkeypatch: Any) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(SettingsError, match=r"pip install optuna"):
        tuning.require_optuna()
