"""The code and the commands in the guide run, and its links lead somewhere."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import sys
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import bvat
import bvat.errors
from bvat.baselines.table import AUTO, BASELINES
from bvat.bench.measure import ROWS
from bvat.cli.main import main
from bvat.data.checksums import read_sealed_json
from bvat.perturb.methods import METHODS
from bvat.report.compare_tables import compare_markdown
from bvat.report.paper_page import table2_markdown

ROOT = Path(__file__).parents[2]
GUIDE = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *GUIDE]
WITHOUT_CODE = {"CONTRIBUTING", "SECURITY", "clusters", "contributing", "faults", "gpu", "large-graphs"}
WITHOUT_CODE |= {"reference", "results", "upgrading"}
BLOCK = re.compile(r"^(?P<before>[^\n]*)\n```(?P<kind>\w*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the python and sh blocks of a page, without those marked as not run."""
    found = BLOCK.finditer(page.read_text("utf-8"))
    return [
        (b["kind"], b["code"])
        for b in found
        if "not run" not in b["before"] and b["kind"] in ("python", "sh")
    ]


def run_command(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(line)
    if words[0] == "python":
        with monkeypatch.context() as patched:
            patched.setattr(sys, "argv", words[1:])
            runpy.run_path(str(ROOT / words[1]), run_name="__main__")
        return
    assert words[0] == "bvat"
    if words[1] == "train":
        words += ["--device", "cpu", "--jobs", "1"]
        method = words[words.index("--method") + 1] if "--method" in words else AUTO
        quick: dict[str, list[str]] = {name: [] for name in BASELINES} | {AUTO: ["--effort", "1"]}
        words += quick.get(method, ["--epochs", "20"])
    with pytest.raises(SystemExit) as ended:
        main(words[1:])
    assert not ended.value.code, line


TRAINING = {"few-labels", "index", "runs", "trust", "which-method", "your-model", "how-it-works"}
"""Pages whose examples train for seconds."""


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] if page.stem in TRAINING else []) for page in PAGES],
    ids=[page.stem for page in PAGES],
)
def test_code_and_commands_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(METHODS, "added", dict(METHODS.added))
    names: dict[str, Any] = {"__name__": "__main__"}
    found = blocks(page)
    assert bool(found) != (page.stem in WITHOUT_CODE)
    for kind, code in found:
        if kind == "python":
            exec(compile(code, page.name, "exec"), names)
        else:
            for line in code.splitlines():
                run_command(line, monkeypatch)


def test_the_start_page_shows_the_table_that_the_example_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_command("python examples/own_csv.py articles", monkeypatch)
    shown = re.search(r"```\n(id,label,text\n.*?)```", (ROOT / "docs/index.md").read_text("utf-8"), re.DOTALL)
    assert shown is not None
    assert Path("articles/nodes.csv").read_text("utf-8").replace("\r\n", "\n").startswith(shown[1])


def test_links_and_pictures_exist() -> None:
    for page in PAGES:
        text = page.read_text("utf-8")
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
            assert target.startswith("https://") or (page.parent / target).is_file(), (page.name, target)
        for path in re.findall(r"`((?:examples|docs)/[\w./]+\.\w+)`", text):
            assert (ROOT / path).is_file(), (page.name, path)
    for picture in (ROOT / "docs/pictures").glob("*.svg"):
        ET.parse(picture)
        assert picture.stat().st_size < 60_000


def test_the_navigation_names_every_page() -> None:
    named = re.findall(r"^  - .+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(named) == [page.name for page in GUIDE]


def test_the_reference_lists_every_public_name() -> None:
    listed = re.findall(
        r"^::: bvat\.(?:.*\.)?(\w+)$", (ROOT / "docs/reference.md").read_text("utf-8"), re.MULTILINE
    )
    errors = {name for name in bvat.__all__ if name.endswith("Error")}  # listed by their module
    assert set(bvat.__all__) - errors - {"__version__"} <= set(listed)
    assert errors <= set(dir(bvat.errors))


def test_the_citation_has_the_version_of_the_package() -> None:
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.search(rf"^version: {re.escape(bvat.__version__)}$", citation, re.MULTILINE)


def test_the_extras_on_the_start_page_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    table = (ROOT / "docs/index.md").read_text("utf-8").split("| extra | for |")[1].split("##")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(extras)


RESULT_PAGES = {"README.md": ["short"], "docs/results.md": ["table2", "compare", "speed"]}


@pytest.mark.parametrize("page", RESULT_PAGES)
def test_pages_show_the_current_results(page: str) -> None:
    """If this fails, run: python docs/readme_results.py"""
    with_results = runpy.run_path(str(ROOT / "docs" / "readme_results.py"))["with_results"]
    text = (ROOT / page).read_text("utf-8")
    for name in RESULT_PAGES[page]:
        assert text.count(f"<!-- {name} -->\n") == text.count(f"<!-- end of {name} -->\n") == 1
    assert with_results(text) == text


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) < 120


def test_the_tables_of_the_readme_are_made_from_the_numbers() -> None:
    """If this fails, run write_paper_files and write_compare_files, then python docs/readme_results.py"""
    for make, path in ((table2_markdown, "paper/table2"), (compare_markdown, "compare/compare")):
        numbers, table = (ROOT / "results" / f"{path}.{ending}" for ending in ("json", "md"))
        assert make(read_sealed_json(numbers)) == table.read_text("utf-8"), path


def test_the_benchmark_was_made_by_the_present_code() -> None:
    """If this fails, run: bvat bench --json --out results/bench && python docs/readme_results.py"""
    bench = json.loads((ROOT / "results/bench/bench.json").read_text("utf-8"))
    assert {"bvat", "commit", "source", "python"} <= bench["versions"].keys()
    assert all(tuple(row) == tuple(ROWS) for row in bench["epoch_ms"].values())
    speed = (ROOT / "docs/results.md").read_text("utf-8").split("<!-- speed -->")[1]
    for words in ("FLAG / GCN", "random propagation, 4 passes / GCN", "plain torch / compiled"):
        assert words in speed


def test_the_table_of_costs_is_current() -> None:
    """If this fails, run: python docs/which_method.py"""
    with_table = runpy.run_path(str(ROOT / "docs" / "which_method.py"))["with_table"]
    text = (ROOT / "docs" / "which-method.md").read_text("utf-8")
    assert with_table(text) == text


@pytest.mark.parametrize("page", ["large-graphs", "few-labels", "trust", "certified"])
def test_the_measurements_are_current(page: str) -> None:
    """If this fails, run the script of the page, such as: python docs/trust.py"""
    with_tables = runpy.run_path(str(ROOT / "docs" / f"{page.replace('-', '_')}.py"))["with_tables"]
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    assert with_tables(text) == text


def test_a_comparison_takes_its_place_on_the_page(tmp_path: Path) -> None:
    with_results = runpy.run_path(str(ROOT / "docs" / "readme_results.py"))["with_results"]
    text = (ROOT / "docs/results.md").read_text("utf-8")
    (tmp_path / "compare").mkdir()
    (tmp_path / "compare" / "compare.md").write_text("| 5 labels per class |\n|---|\n", "utf-8")
    filled = with_results(text, tmp_path)
    inside = filled.split("<!-- compare -->\n")[1].split("<!-- end of compare -->\n")[0]
    assert inside.startswith("\n| 5 labels per class |\n")
    assert with_results(filled, tmp_path) == filled
