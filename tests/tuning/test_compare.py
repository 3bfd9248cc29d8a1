"""``bvat compare``."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bvat.cli.main import main
from bvat.data import load, save_graph, synthetic_graph
from bvat.data.checksums import write_sealed_json
from bvat.data.splits import resplit
from bvat.errors import BvatError, SettingsError
from bvat.training.loop import train
from bvat.training.settings import Settings
from bvat.training.state import restore_model
from bvat.training.trained import accuracy, predict
from bvat.tuning.compare import collect, compare, read_cell
from bvat.tuning.comparison import ComparisonPlan
from bvat.tuning.variants import Variant

QUICK = {"epochs": 8, "hidden": 16}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("graphs")
    paths = []
    for seed, name in enumerate(("one", "two")):
        graph = synthetic_graph(250, 700, features=40, classes=3, seed=seed)
        save_graph(graph, folder / f"{name}.npz")
        paths.append(str(folder / f"{name}.npz"))
    return paths


def test_paired_differences_and_resumption(graphs: list[str], tmp_path: Path) -> None:
    plan = ComparisonPlan(tuple(graphs), ("gcn", "vat"), (3, 6), splits=2, val=60, overrides=QUICK)
    result = compare(plan, tmp_path, jobs=1)
    assert [(row["graph"], row["labels"]) for row in result["rows"]] == [
        ("one", 3), ("one", 6), ("two", 3), ("two", 6)]  # fmt: skip
    for row in result["rows"]:
        base, vat = row["variants"]["gcn"], row["variants"]["vat"]
        gains = [a - b for a, b in zip(vat["values"], base["values"], strict=True)]
        assert vat["gain"]["mean"] == pytest.approx(sum(gains) / 2)
        assert vat["wins"] + vat["losses"] <= 2
        assert base["gain"]["mean"] == 0
    cells = sorted((tmp_path / "work" / "cells").iterdir())
    assert len(cells) == 8
    before = {path: path.stat().st_mtime_ns for path in cells}
    cells[3].write_text("{")
    again = compare(plan, tmp_path, jobs=1)
    assert again["rows"] == result["rows"]
    changed = [path for path in cells if path.stat().st_mtime_ns != before[path]]
    assert changed == [cells[3]]


def test_auto_is_trained_on_the_same_splits(graphs: list[str], tmp_path: Path) -> None:
    """The ensemble is a variant like any other: its numbers are those of a fit to the split alone."""
    plan = ComparisonPlan(
        tuple(graphs[:1]), ("gcn", "auto"), (4,), splits=2, val=100, overrides={"effort": 1}
    )
    row = compare(plan, tmp_path, jobs=1)["rows"][0]
    settings = Variant.parse("auto").settings(effort=1)
    whole = load(graphs[0])
    expected = [train(resplit(whole, 4, 100, split), settings).selected["test"] for split in range(2)]
    assert row["variants"]["auto"]["values"] == expected
    assert row["variants"]["auto"]["kept"] == 2


def test_labels_alone(graphs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --val 0 no method sees more labels than those for training, down to one per class."""
    out = tmp_path / "out"
    (tmp_path / "quick.toml").write_text("effort = 1\npretrain = 4\nepochs = 8\n")
    options = ["--methods", "gcn,vat,auto", "--labels", "1,2", "--splits", "1", "--val", "0"]
    options += ["--settings", str(tmp_path / "quick.toml"), "--jobs", "1", "--out", str(out)]
    assert run_command(graphs[0], *options) == 0
    assert "1 label per class" in capsys.readouterr().out
    result = json.loads((out / "compare.json").read_text())
    assert "--val 0" in result["command"]
    assert "no validation nodes" in (out / "report.html").read_text()
    about = result["graphs"]["one"]
    assert (result["val"], about["val"], about["train"] + about["test"]) == (0, 0, 250)
    assert [row["labels"] for row in result["rows"]] == [1, 2]
    assert {name: each["select"] for name, each in result["settings"].items() if name != "auto"} == {
        "gcn": "last", "vat": "last"}  # fmt: skip
    assert result["settings"]["gcn"]["epochs"] == 4  # as long as the plain phase of the others
    hidden = resplit(load(graphs[0]), 2, 0, 0)
    labels = hidden.labels.clone()
    labels[hidden.test] = -1
    blind = dataclasses.replace(hidden, labels=labels, test=hidden.test[:0])
    for name in ("gcn", "vat", "auto"):
        settings = Settings(**result["settings"][name])
        weights = train(blind, settings).weights
        model = restore_model(settings, hidden.num_features, hidden.num_classes, weights)
        right = accuracy(predict(model, hidden), hidden, hidden.test)
        assert result["rows"][1]["variants"][name]["values"] == [right], name


def test_bad_plans(graphs: list[str], tmp_path: Path) -> None:
    for wrong, message in (
        ({"variants": ("vat",)}, "gcn must be among the methods"),
        ({"variants": ("gcn", "cubic")}, "there is no method 'cubic'"),
        ({"splits": 0}, "at least 1"),
        ({"graphs": (graphs[0], graphs[0])}, "the same name"),
    ):
        with pytest.raises(SettingsError, match=message):
            ComparisonPlan(**{"graphs": tuple(graphs), **wrong})  # type: ignore[arg-type]
    with pytest.raises(BvatError, match="no split of this comparison is finished"):
        collect(ComparisonPlan(tuple(graphs)), tmp_path)


def run_command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["compare", *arguments])
    return int(ended.value.code or 0)


SHORT = ("--methods", "gcn,consistency", "--epochs", "4", "--jobs", "1")


def test_given_splits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is trained on a given split are the nodes of that split, with several seeds."""
    graph = synthetic_graph(200, 600, features=40, classes=3, train_per_class=4, val=37, test=101)
    save_graph(graph, tmp_path / "mine.npz")
    source, out = str(tmp_path / "mine.npz"), tmp_path / "out"
    command = [source, *SHORT, "--splits", "given", "--seeds", "3", "--out", str(out)]
    assert run_command(*command) == 0
    said = capsys.readouterr()
    assert "given splits" in said.out
    assert "not used" not in said.err
    result = json.loads((out / "compare.json").read_text())
    about = result["graphs"]["mine"]
    assert (result["split"], about["train"], about["val"], about["test"]) == ("given", 12, 37, 101)
    (row,) = result["rows"]
    assert row["splits"] == [0, 1, 2]
    settings = Variant.parse("gcn").settings(epochs=4)
    tests = [train(graph, settings, seed).selected["test"] for seed in range(3)]
    assert row["variants"]["gcn"]["values"] == tests
    page = (out / "report.html").read_text()
    assert "3 seeds on the split that each graph has" in page
    assert "random splits" not in page
    assert "--splits given --seeds 3" in result["command"]
    assert run_command(*command, "--report-only") == 0
    for wrong in (["--labels", "5"], ["--val", "20"], ["--first-split", "0"]):
        assert run_command(*command, *wrong) == 2
        assert f"{wrong[0]} has no effect on given splits" in capsys.readouterr().err
    untested = dataclasses.replace(graph, test=graph.test[:0])
    save_graph(untested, tmp_path / "untested.npz")
    assert run_command(str(tmp_path / "untested.npz"), *SHORT, "--splits", "given") == 2
    assert "has no test nodes with labels in its split" in capsys.readouterr().err


def test_a_split_that_is_not_used_is_mentioned(
    graphs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = dataclasses.replace(
        synthetic_graph(250, 700, features=40, classes=3), validation="drawn: 5 per class"
    )
    save_graph(drawn, tmp_path / "drawn.npz")
    options = [*SHORT, "--labels", "3", "--splits", "1", "--val", "40", "--out", str(tmp_path / "out")]
    sentence = "the split of one is not used, random ones are drawn instead: --splits given uses"
    assert run_command(graphs[0], str(tmp_path / "drawn.npz"), *options) == 0
    said = capsys.readouterr()
    assert f"Note: {sentence}" in " ".join(said.out.split())
    assert "±" not in said.out.split("First row")[0]  # of a single split nothing is known about others
    assert "**" not in (tmp_path / "out" / "compare.md").read_text()
    assert not re.search(r'class="n (above|below)"', (tmp_path / "out" / "report.html").read_text())
    assert sentence in json.loads((tmp_path / "out" / "compare.json").read_text())["split_note"]
    assert sentence in (tmp_path / "out" / "report.html").read_text()
    assert sentence in (tmp_path / "out" / "compare.md").read_text()
    for wrong in (["--seeds", "3"], ["--splits", "many"], ["--splits", "0"], ["--splits", "1e3"]):
        assert run_command(graphs[0], *options, *wrong) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_splits_without_test_nodes_are_refused_before_training(
    graphs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run_command(graphs[0], *SHORT, "--labels", "3,6", "--splits", "2", "--out", str(out)) == 2
    assert "leave none of the 250 labels" in capsys.readouterr().err
    assert not out.exists()


def test_methods_that_tie(graphs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Equal means have no spread but what rounding leaves, and charts of them have an axis all the same."""
    out = tmp_path / "out"
    options = [*SHORT, "--labels", "3,6", "--splits", "3", "--val", "40", "--out", str(out)]
    assert run_command(graphs[0], *options) == 0
    for path in (out / "work" / "cells").iterdir():
        cell = read_cell(path)
        assert cell is not None
        for result in cell["results"].values():
            result["metrics"]["accuracy"] = 100 * 177 / 187
        write_sealed_json(path, cell)
    assert run_command(graphs[0], *options, "--report-only") == 0
    assert "94.7" in (out / "report.html").read_text()
    capsys.readouterr()


def test_results_are_kept_if_the_page_fails(
    graphs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> str:
        raise ZeroDivisionError("float division by zero")

    monkeypatch.setattr("bvat.report.compare_page.compare_page", broken)
    options = [*SHORT, "--labels", "3", "--splits", "1", "--val", "40", "--out", str(tmp_path / "out")]
    assert run_command(graphs[0], *options) == 0
    said = capsys.readouterr()
    assert "note: the page was not written (ZeroDivisionError: float division by zero)" in said.err
    assert "3 labels per class" in said.out
    assert "page:" not in said.out
    assert first_row(tmp_path)["graph"] == "one"


def first_row(folder: Path) -> dict[str, Any]:
    row: dict[str, Any] = json.loads((folder / "out" / "compare.json").read_text())["rows"][0]
    return row


def test_command(graphs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compare", *graphs, "--methods", "gcn,consistency", "--labels", "3", "--splits", "2"]
    command += ["--val", "40", "--epochs", "8", "--jobs", "1", "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 0
    assert "3 labels per class" in capsys.readouterr().out
    page = (tmp_path / "out" / "report.html").read_text()
    assert "GCN + consistency" in page
    assert "<li>" not in page  # no list of findings before or after the tables, which say it all
    assert (tmp_path / "out" / "gains.svg").read_text().startswith("<svg")
    assert "| GCN + consistency |" in (tmp_path / "out" / "compare.md").read_text()
    with pytest.raises(SystemExit) as ended:
        main([*command, "--report-only", "--json"])
    assert json.loads(capsys.readouterr().out)["splits"] == 2
    values = {name: entry["values"] for name, entry in first_row(tmp_path)["variants"].items()}
    with pytest.raises(SystemExit):
        main([*command, "--report-only", "--against", "consistency"])
    capsys.readouterr()
    against = first_row(tmp_path)["variants"]
    gains = [a - b for a, b in zip(values["gcn"], values["consistency"], strict=True)]
    assert against["gcn"]["gain"]["mean"] == pytest.approx(sum(gains) / len(gains))
    assert list(against) == ["consistency", "gcn"]  # what all are compared with comes first
    assert "points against GCN + consistency" in (tmp_path / "out" / "report.html").read_text()
    for wrong in (
        ["--against", "x"],
        ["--labels", "0"],
        ["--labels", "x"],
        ["--methods", "x"],
        ["--epochs", "1"],
    ):
        with pytest.raises(SystemExit) as ended:
            main([*command, *wrong])
        assert ended.value.code == 2
        assert "Traceback" not in capsys.readouterr().err


def test_directed_edges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A node of class 1 is told apart by whom it reads, which is lost where edges go both ways."""
    table = tmp_path / "mail"
    table.mkdir()
    rows = [f"{i},{'' if i < 40 else 'ab'[i % 2]},{float(i == 0)},{float(i == 1)}" for i in range(120)]
    (table / "nodes.csv").write_text("\n".join(["id,label,x,y", *rows]) + "\n")
    edges = [(i % 2, i) for i in range(40, 120)] + [(i, 1 - i % 2) for i in range(40, 120)]
    (table / "edges.csv").write_text("source,target\n" + "".join(f"{a},{b}\n" for a, b in edges))
    options = [
        "--methods",
        "gcn",
        "--labels",
        "5",
        "--splits",
        "2",
        "--val",
        "20",
        "--epochs",
        "30",
        "--jobs",
        "1",
        "--json",
    ]
    found = {}
    for option in ("", "--directed"):
        command = ["compare", str(table), *options, "--out", str(tmp_path / f"out{option}")]
        with pytest.raises(SystemExit) as ended:
            main([*command, option] if option else command)
        assert ended.value.code == 0
        row = json.loads(capsys.readouterr().out)["rows"][0]
        found[option] = row["variants"]["gcn"]["mean"]
    assert found["--directed"] == 100 > found[""]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--directed", "--methods", "lp"])
    assert ended.value.code == 2
    assert "undirected edges" in capsys.readouterr().err
