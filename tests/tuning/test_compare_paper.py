"""``bvat compare`` for a paper: metrics, p-values, given splits, tuned settings, a budget, and its tables."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from bvat.cli.main import main
from bvat.data import load, save_graph, synthetic_graph
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.report.compare_tables import compare_csv, latex_tables, markdown_tables
from bvat.training.loop import train
from bvat.training.metrics import all_metrics
from bvat.training.state import restore_model
from bvat.training.trained import predict
from bvat.tuning.compare import compare
from bvat.tuning.comparison import ComparisonPlan
from bvat.tuning.significance import holm, permutation_test
from bvat.tuning.variants import Variant

QUICK = {"epochs": 5, "hidden": 8}


def run_command(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["compare", *map(str, arguments), "--jobs", "1"])
    return int(ended.value.code or 0)


def small_graph(seed: int = 0) -> Graph:
    return synthetic_graph(
        120, 300, features=30, classes=3, seed=seed, train_per_class=4, val=30, test=60
    ).with_engine("tensor")


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("graphs")
    for seed, name in enumerate(("one", "two", "under_score")):
        save_graph(small_graph(seed), folder / f"{name}.npz")
    return [str(folder / f"{name}.npz") for name in ("one", "two", "under_score")]


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with three splits."""
    graph = small_graph()
    marks = torch.stack([torch.from_numpy(np.random.default_rng(k).permutation(120) % 4) for k in range(3)])
    path = tmp_path_factory.mktemp("several") / "several.npz"
    save_graph(dataclasses.replace(graph, splits=marks.to(torch.int8)), path)
    return path


@pytest.fixture(scope="module")
def compared(graphs: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    plan = ComparisonPlan(
        tuple(graphs), ("gcn", "consistency", "lp"), (3,), splits=4, val=20, overrides=QUICK,
        metrics=("macro_f1", "log_loss"), significance=True,
    )  # fmt: skip
    out = tmp_path_factory.mktemp("compared")
    return out, compare(plan, out, jobs=1)


def test_metrics_are_those_of_the_trained_models(several: Path, tmp_path: Path) -> None:
    """On each of several given splits, of probabilities computed here again."""
    plan = ComparisonPlan(
        (str(several),), ("gcn", "lp"), ("given",), splits=None, overrides=QUICK, metrics=("ece", "roc_auc")
    )
    result = compare(plan, tmp_path, jobs=1)
    graph = load(several)
    assert result["rows"][0]["splits"] == [0, 1, 2]
    for name in ("gcn", "lp"):
        settings = Variant.parse(name).settings(**(QUICK if name == "gcn" else {}))
        for k in range(3):
            split = graph.with_split(k)
            assert torch.equal(split.test, torch.nonzero(graph.splits[k] == 3).flatten())  # type: ignore[index]
            trained = train(split, settings, 0)
            model = restore_model(settings, 30, 3, trained.weights)
            p = torch.softmax(predict(model, split)[split.test].double(), 1).numpy()
            expected = all_metrics(p, split.labels[split.test].numpy())
            views = [result, result["more"][0]]
            found = [view["rows"][0]["variants"][name]["values"][k] for view in views]
            assert found == pytest.approx([expected["ece"], expected["roc_auc"]])


def test_seeds_on_several_splits(several: Path) -> None:
    plan = ComparisonPlan((str(several),), ("gcn",), ("given",), splits=2)
    graph = load(several)
    cells = plan.cells()
    assert [cell.seed for cell in cells] == [0, 0, 0, 1, 1, 1]
    assert torch.equal(cells[4].of(graph, 0).train, graph.with_split(1).train)
    assert len({cell.name for cell in cells}) == 6


def test_gains_are_positive_where_a_method_is_better(compared: tuple[Path, dict[str, Any]]) -> None:
    """Also of the log-loss, of which less is better."""
    _, result = compared
    for view, sign in ((result, 1), (result["more"][0], -1)):
        for row in view["rows"]:
            base = row["variants"]["gcn"]["values"]
            for entry in row["variants"].values():
                gains = [sign * (a - b) for a, b in zip(entry["values"], base, strict=True)]
                assert entry["gain"]["mean"] == pytest.approx(np.mean(gains))
                assert entry["wins"] == sum(gain > 0 for gain in gains)


def test_p_values_and_ranks_belong_to_the_values(compared: tuple[Path, dict[str, Any]]) -> None:
    _, result = compared
    for view, sign in ((result, -1), (result["more"][0], 1)):
        means = []
        for row in view["rows"]:
            values = {name: np.array(entry["values"]) for name, entry in row["variants"].items()}
            p = [permutation_test(values[name] - values["gcn"]) for name in ("consistency", "lp")]
            found = [row["variants"][name] for name in ("consistency", "lp")]
            assert [entry["p"] for entry in found] == p
            assert [entry["p_holm"] for entry in found] == holm(p)
            assert "p" not in row["variants"]["gcn"]
            means.append([sign * values[name].mean() for name in result["variants"]])
        by_hand = np.mean([rankdata(row) for row in means], axis=0)
        assert view["ranks"]["3"]["ranks"] == pytest.approx(by_hand)


def test_tables(compared: tuple[Path, dict[str, Any]]) -> None:
    _, result = compared
    table = list(csv.DictReader(compare_csv(result).splitlines()))
    assert len(table) == 3 * 4 * 3
    entry = result["more"][0]["rows"][1]["variants"]["lp"]
    values = [float(row["log_loss"]) for row in table if (row["graph"], row["method"]) == ("two", "lp")]
    assert values == entry["values"]
    tex = latex_tables(result)
    assert tex.count("\\toprule") == 2
    assert r"under\_score" in tex
    assert (
        "log-loss, 3 labels per class: mean and standard deviation over 4 random splits; lower" in tex.lower()
    )
    for view, best in ((result, max), (result["more"][0], min)):
        digits = 1 if view is result else 3
        for row in view["rows"]:
            shown = [f"{e['mean']:.{digits}f}" for e in row["variants"].values()]
            winner = best(shown, key=float)
            assert rf"\textbf{{{winner}}}" in tex
            assert f"**{winner}**" in markdown_tables(result)
            second = best([text for text in shown if text != winner], key=float)
            assert rf"\underline{{{second}}}" in tex


@pytest.mark.slow
def test_files_and_page(compared: tuple[Path, dict[str, Any]], graphs: list[str], capsys: Any) -> None:
    """The results are there: another metric needs no training."""
    out, _ = compared
    (out / "quick.toml").write_text("epochs = 5\nhidden = 8\n")
    command = [*graphs, "--methods", "gcn,consistency,lp", "--labels", "3", "--splits", "4", "--val", "20",
               "--settings", out / "quick.toml", "--out", out]  # fmt: skip
    before = {path: path.stat().st_mtime_ns for path in out.rglob("cells/*.json")}
    assert run_command(*command, "--metric", "roc_auc,ece", "--significance") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert "3 labels per class, ROC AUC (%)" in said
    assert "Mean ranks over 3 graphs:" in said
    page = (out / "report.html").read_text()
    assert 'id="ece-3"' in page
    assert "Mean ranks" in page
    for name in ("gains", "roc_auc", "ranks-roc_auc-3", "ranks-ece-3"):
        content = (out / f"{name}.pdf").read_bytes()
        assert content.startswith(b"%PDF")
        assert (out / f"{name}.svg").exists()
    assert run_command(*command, "--metric", "roc_auc,ece", "--significance", "--report-only") == 0
    assert (out / "ranks-ece-3.pdf").read_bytes() == content
    assert "--metric roc_auc,ece --significance" in json.loads((out / "compare.json").read_text())["command"]
    capsys.readouterr()


def test_bad_input_is_one_sentence(
    graphs: list[str], several: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", tmp_path / "out"]
    (tmp_path / "vat.toml").write_text('method = "vat"\nepsilon = 0.02\n')
    (tmp_path / "empty").mkdir()
    for wrong, message in (
        (["--metric", "accuracy,auc"], "there is no metric 'auc'"),
        (["--metric", ","], "--metric is empty"),
        (["--significance", "--splits", "1"], "p-values need at least two splits"),
        (
            ["--significance", "--splits", "given", "--seeds", "1"],
            "p-values need at least two splits or seeds",
        ),
        (["--budget", "0"], "--budget is 0: use a number of minutes above 0"),
        (["--methods", "gcn,lp", "--settings", tmp_path / "vat.toml"], "settings of vat, which is not among"),
        (["--settings", tmp_path / "empty"], "has nothing for these graphs and methods"),
    ):
        assert run_command(graphs[0], *wrong, *out) == 2, wrong
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()
    assert run_command(several, "--splits", "given", "--methods", "gcn,lp", *out, "--epochs", "4") == 0
    assert "runs on the given splits" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_tuned_settings_reach_their_method_and_graph(
    graphs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = tmp_path / "tuned"
    tuned.mkdir()
    for graph, method, chosen in (("one", "vat", {"epsilon": 0.02}), ("two", "none", {"lr": 0.02}),
                                  ("elsewhere", "vat", {"epsilon": 0.5})):  # fmt: skip
        content = {"dataset": graph, "method": method, "chosen": chosen}
        content["fixed"] = {"method": method, "model": "gcn", "epochs": 7, "pretrain": 0}
        (tuned / f"{graph}-{method}.json").write_text(json.dumps(content))
    options = ["--methods", "gcn,vat", "--labels", "3", "--splits", "1", "--val", "20"]
    assert run_command(*graphs[:2], *options, "--settings", tuned, "--out", tmp_path / "out") == 0
    settings = json.loads((tmp_path / "out" / "compare.json").read_text())["settings"]
    default = Variant.parse("vat").settings()
    assert (settings["vat on one"]["epsilon"], settings["vat on one"]["epochs"]) == (0.02, 7)
    assert (settings["gcn on two"]["lr"], settings["gcn on two"]["epochs"]) == (0.02, 7)
    assert settings["vat on two"] == default.as_dict()
    assert "were tuned for vat on one, gcn on two" in (tmp_path / "out" / "report.html").read_text()
    assert "may be test labels on random splits" in " ".join(capsys.readouterr().out.split())


def test_a_file_that_names_a_method_is_for_that_method(
    graphs: list[str], tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "vat.toml").write_text('method = "vat"\nepochs = 6\npretrain = 0\nepsilon = 0.02\n')
    options = ["--methods", "gcn,vat", "--labels", "3", "--splits", "1", "--val", "20", "--epochs", "5"]
    command = [graphs[0], *options, "--settings", tmp_path / "vat.toml", "--out", tmp_path / "out"]
    assert run_command(*command) == 0
    settings = json.loads((tmp_path / "out" / "compare.json").read_text())["settings"]
    assert settings["vat"]["epsilon"] == 0.02
    assert (settings["vat"]["epochs"], settings["gcn"]["epochs"]) == (5, 5)  # the command line wins
    capsys.readouterr()


def test_a_budget_says_what_is_missing(graphs: list[str], tmp_path: Path, monkeypatch: Any) -> None:
    clock = iter(range(0, 10_000, 25))
    monkeypatch.setattr("bvat.tuning.compare.time.time", lambda: next(clock))
    plan = ComparisonPlan(tuple(graphs[:1]), ("gcn", "lp"), (3,), splits=4, val=20, overrides=QUICK, budget=2)
    result = compare(plan, tmp_path, jobs=1)  # two runs of a split take 50 of 120 seconds
    assert result["missing"] == ["one-3-2", "one-3-3"]
    assert result["rows"][0]["splits"] == [0, 1]
    monkeypatch.undo()
    whole = compare(dataclasses.replace(plan, budget=None), tmp_path, jobs=1)
    assert (whole["missing"], whole["rows"][0]["splits"]) == ([], [0, 1, 2, 3])
    assert whole["rows"][0]["variants"]["gcn"]["values"][:2] == result["rows"][0]["variants"]["gcn"]["values"]


def test_plans_refuse_what_cannot_be_tested(graphs: list[str]) -> None:
    with pytest.raises(SettingsError, match="p-values need at least two splits"):
        ComparisonPlan(tuple(graphs), splits=1, significance=True)
    with pytest.raises(SettingsError, match="there is no metric 'f2'"):
        ComparisonPlan(tuple(graphs), metrics=("f2",))
