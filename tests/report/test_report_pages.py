"""Pages and figure files."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from page_checks import EVIL, check_page, made_up_results

import bvat
from bvat.cli.common import command_line
from bvat.data import load_graph, save_graph, synthetic_graph
from bvat.errors import SettingsError
from bvat.report.charts import standalone
from bvat.report.pages import compared_settings, render, signed
from bvat.report.paper_page import figure_charts, paper_page, table2_markdown, write_paper_files
from bvat.report.run_page import confusion, write_run_page
from bvat.store.folder import RunFolder
from bvat.store.results import summary_of
from bvat.training.settings import Settings
from cli_helpers import bvat as run_command


def test_paper_page_says_what_reproduces() -> None:
    seen = check_page(paper_page(made_up_results()))
    words = " ".join(seen.words)
    for expected in ("▲ +2.0 above", "● +0.1 within", "▼ −3.0 below", "paper 83.6 ± 0.5",
                     "cells of Table 2 within or above one std of the paper’s mean", "3 of 4",
                     "GCN + consistency", "Numbers (in brackets: the paper)",
                     "bvat reproduce all --datasets cora", "labels of cora", "torch 2",
                     "S-BVAT, paper"):  # fmt: skip
        assert expected in words
    assert seen.tags.count("svg") == 1, "one per panel"


def test_names_cannot_break_a_page() -> None:
    content = paper_page(made_up_results(EVIL))
    seen = check_page(content)
    assert "<script" not in content
    assert EVIL in " ".join(seen.words)
    assert "\x1b" not in render("base.html", title="\x1b[31m")


def test_settings_are_shared_or_compared() -> None:
    rows, shared = compared_settings({"a": {"lr": 0.010, "hidden": 16}, "b": {"lr": 0.010, "hidden": 32}})
    assert (rows, shared) == ([["hidden", "16", "32"]], "lr 0.01")


def test_files_of_a_folder(tmp_path: Path) -> None:
    results = made_up_results()
    for name, result in results.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(result))
    assert write_paper_files(tmp_path).read_text("utf-8") == paper_page(results)
    assert (tmp_path / "table2.md").read_text("utf-8") == table2_markdown(results["table2"])
    first = (tmp_path / "fig1a.svg").read_text("utf-8")
    assert "S-BVAT, paper" in first
    fig1a = made_up_results()["fig1a"]
    assert standalone(fig1a["title"], figure_charts(fig1a)) == first
    for wrong in ("{", "[]", '{"format": 0}'):
        (tmp_path / "fig3.json").write_text(wrong)
        with pytest.raises(SettingsError, match="run bvat reproduce fig3 again"):
            write_paper_files(tmp_path)


def test_markdown() -> None:
    lines = table2_markdown(made_up_results()["table2"]).splitlines()
    assert lines[0] == "| test accuracy (%) | cora |"
    assert "| GCN + O-BVAT | 80.6 ± 0.2 (83.6) |" in lines
    assert "| GCN + consistency | 83.0 ± 0.2 |" in lines
    kept = made_up_results()["table2"]
    kept["settings"]["cora"]["obvat"]["select"] = "loss"
    kept["cells"]["obvat"]["cora"]["best"] = {**kept["cells"]["obvat"]["cora"]["best"], "mean": 81.5}
    text = table2_markdown(kept)
    assert "| GCN + O-BVAT | 81.5 ± 0.2‡ [80.6] (83.6) |" in text
    assert "‡ The epoch that the method's rule of stopping keeps, in brackets the last one" in text
    best = {**made_up_results()["table2"], "comparable": {"last": [], "best": ["cora"]}}
    best["cells"]["obvat"]["cora"]["best"] = {**best["cells"]["obvat"]["cora"]["best"], "mean": 81.5}
    assert "| GCN + O-BVAT | 81.5 ± 0.2 (83.6) |" in table2_markdown(best, ["obvat"])
    assert "| test accuracy (%) | cora § |" in table2_markdown(best)
    words = " ".join(check_page(paper_page({"table2": kept})).words)
    assert words.count("‡ best epoch 81.5") == words.count("‡ last epoch 80.6") == 1, "in each other's table"
    assert "‡ The settings of this row keep the epoch that its rule of stopping chooses" in words
    assert "‡" not in " ".join(check_page(paper_page(made_up_results())).words)
    for method, row in kept["cells"].items():
        count = 10 if method == "obvat" else 20
        row["nell"] = row["cora"] | {"seeds": list(range(10))}
        row["cora"] = row["cora"] | {"seeds": list(range(count))}
    kept["seeds"] = {"cora": 20, "nell": 10}
    assert "Number of seeds: cora 20, nell 10 (GCN + O-BVAT: 10)." in table2_markdown(kept)
    assert "Rows with a different number of seeds: GCN + O-BVAT: 10." in paper_page({"table2": kept})
    assert (signed(0.04), signed(-0.04), signed(-1.0), signed(2.0)) == ("0.0", "0.0", "−1.0", "+2.0")


def test_run_page(run_folder: Path) -> None:
    seen = check_page((run_folder / "report.html").read_text("utf-8"))
    words = " ".join(seen.words)
    for expected in ("GCN + O-BVAT on synthetic", "Loss", "Accuracy", "R_vadv", "Perturbation",
                     "Confusion matrix", "--epochs 12"):  # fmt: skip
        assert expected in words
    result = json.loads((run_folder / "result.json").read_text())
    assert f"{result['test_accuracy']['mean']:.1f} ± {result['test_accuracy']['std']:.1f} %" in words
    matrix = [int(word) for word in seen.words if word.isdigit()]
    assert len(matrix) >= 16


def test_a_handful_of_test_nodes_gets_an_interval(run_folder: Path) -> None:
    graph = load_graph(run_folder / "graph.npz")
    folder = RunFolder(run_folder)
    stored = folder.read("result.json")
    settings, results = Settings(**stored["settings"]), [folder.result(0)]
    before = (run_folder / "report.html").read_text("utf-8")
    pages = {}
    for count in (20, 0):
        few = replace(graph, test=graph.test[:count], val=graph.val[:0])
        seeds = [{**result, "selected": {"epoch": 3, "val": None, "test": 60.0 if count else None}, "f1": {}}
                 for result in results if result]  # fmt: skip
        write_run_page(folder, few, settings, [0], summary_of(few, settings, seeds))
        pages[count] = " ".join(check_page((run_folder / "report.html").read_text("utf-8")).words)
    (run_folder / "report.html").write_text(before, "utf-8")
    assert "test accuracy, 95 % interval 38.7 to 78.1 on 20 nodes" in pages[20]
    assert "60.0 %" in pages[20]
    assert "±" not in pages[20]
    assert "20 test nodes" in pages[20]
    assert "no nodes were held out" in pages[0]
    assert "test accuracy" not in pages[0]


def test_names_cannot_break_a_run_page(run_folder: Path, tmp_path: Path) -> None:
    graph = load_graph(run_folder / "graph.npz")
    named = replace(graph, name=EVIL, class_names=tuple(f"{EVIL}{k}" for k in range(4)), validation=EVIL)
    bvat.run(named, "none", epochs=3, folder=tmp_path / "run", options=bvat.RunOptions(command=EVIL))
    content = (tmp_path / "run" / "report.html").read_text("utf-8")
    check_page(content)
    assert "<script" not in content


def test_many_classes_and_no_test_nodes(tmp_path: Path) -> None:
    graph = synthetic_graph(nodes=150, edges=300, features=60, classes=25, train_per_class=1, val=50, test=0)
    bvat.run(graph, "none", epochs=3, folder=tmp_path / "run")
    words = " ".join(check_page((tmp_path / "run" / "report.html").read_text("utf-8")).words)
    assert "the most common confusions" in words
    assert "50 validation nodes" in words
    assert "Perturbation" not in words


def test_training_without_a_page(
    tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    save_graph(synthetic_graph(nodes=100, edges=200, features=40, classes=2), tmp_path / "small.npz")
    command = ["train", str(tmp_path / "small.npz"), "--method", "obvat", "--epochs", "2", "--json"]
    assert run_command([*command, "--out", str(tmp_path / "none"), "--no-report"], capsys)[0] == 0
    assert not (tmp_path / "none" / "report.html").exists()

    def fail(*_: Any) -> None:
        raise RuntimeError("the pen is dry")

    monkeypatch.setattr("bvat.report.run_page.write_run_page", fail)
    code, _, err = run_command([*command, "--out", str(tmp_path / "failed")], capsys)
    assert (code, "the pen is dry" in err) == (0, True)
    with (tmp_path / "failed" / "metrics.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 2


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """What was given is repeated, except what changes no number; other folders are not named."""
    app = typer.Typer()

    @app.command("train")
    def show(
        context: typer.Context, graph: str, epochs: int = 9, guard: bool = True, out: str = "", jobs: int = 1
    ) -> None:
        typer.echo(command_line(context, "out", elsewhere=True))

    app.command("other")(lambda: None)
    given = ["train", "my graph/", "--epochs", "5", "--no-guard", "--out", "run", "--jobs", "2"]
    for arguments in (given, ["train", "/home/me/my graph"]):
        app(arguments, standalone_mode=False)
    assert capsys.readouterr().out.splitlines() == [
        "bvat train 'my graph/' --epochs 5 --no-guard", "bvat train 'my graph'"
    ]  # fmt: skip


def test_confusion_counts_true_by_predicted() -> None:
    found = confusion(torch.tensor([0, 1, 1, 2]), torch.tensor([0, 0, 1, 2]), 3)
    assert found.tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
