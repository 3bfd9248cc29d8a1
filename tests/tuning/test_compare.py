"""``bvat compare``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bvat.cli.main import main
from bvat.data import save_graph, synthetic_graph
from bvat.errors import BvatError, SettingsError
from bvat.tuning.compare import ComparisonPlan, collect, compare, read_cell
from bvat.tuning.variants import CANDIDATES

QUICK = {"epochs": 12, "hidden": 16}


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
    plan = ComparisonPlan(tuple(graphs), ("gcn", "vat", "auto"), (3, 6), splits=2, val=60, overrides=QUICK)
    result = compare(plan, tmp_path, jobs=1)
    assert [(row["graph"], row["labels"]) for row in result["rows"]] == [
        ("one", 3), ("one", 6), ("two", 3), ("two", 6)]  # fmt: skip
    for row in result["rows"]:
        base, vat = row["variants"]["gcn"], row["variants"]["vat"]
        gains = [a - b for a, b in zip(vat["values"], base["values"], strict=True)]
        assert vat["gain"]["mean"] == pytest.approx(sum(gains) / 2)
        assert vat["wins"] + vat["losses"] <= 2
        assert base["gain"]["mean"] == 0
        assert set(row["chosen"]) <= set(CANDIDATES)
    cells = sorted((tmp_path / "work" / "cells").iterdir())
    assert len(cells) == 8
    before = {path: path.stat().st_mtime_ns for path in cells}
    cells[3].write_text("{")
    again = compare(plan, tmp_path, jobs=1)
    assert again["rows"] == result["rows"]
    changed = [path for path in cells if path.stat().st_mtime_ns != before[path]]
    assert changed == [cells[3]]


def test_auto_picks_by_validation_not_by_test(graphs: list[str], tmp_path: Path) -> None:
    plan = ComparisonPlan(tuple(graphs[:1]), ("gcn", "auto"), (4,), splits=1, val=60, overrides=QUICK)
    result = compare(plan, tmp_path, jobs=1)
    cell = read_cell(tmp_path / "work" / "cells" / "one-4-0.json")
    assert cell is not None
    best = max(CANDIDATES, key=lambda name: cell["results"][name]["val"])
    assert result["rows"][0]["chosen"] == [best]
    assert result["rows"][0]["variants"]["auto"]["values"] == [cell["results"][best]["test"]]


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
