"""Digests and versions: what tells two results apart."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import bvat
from bvat import __version__
from bvat.data import save_graph, synthetic_graph
from bvat.data.checksums import write_sealed_json
from bvat.paper.request import Request
from bvat.paper.targets import reproduce
from bvat.report.compare_page import compare_page
from bvat.report.paper_page import paper_page
from bvat.store.results import seed_result, summary_of
from bvat.training import provenance
from bvat.training.loop import train
from bvat.training.provenance import code, digest, package_versions, source_digest, versions
from bvat.training.settings import preset
from bvat.tuning.compare import ComparisonPlan, compare


def test_a_digest_depends_on_values_and_not_on_their_order() -> None:
    assert digest({"a": 1, "b": [2.0]}) == digest({"b": [2.0], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
    assert digest([], 10) == digest([])[:10]


def test_a_package_that_is_not_installed_has_no_version() -> None:
    found = package_versions(("numpy", "no-such-package"))
    assert list(found) == ["bvat", "commit", "source", "python", "numpy", "no-such-package"]
    assert (found["bvat"], found["numpy"], found["no-such-package"]) == (__version__, np.__version__, None)


def test_the_digest_of_the_sources_changes_with_any_of_them(tmp_path: Path) -> None:
    def write(name: str, text: str) -> str:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
        return source_digest(tmp_path)

    seen = [
        write("a.py", "one"),
        write("a.py", "two"),
        write("inner/b.py", ""),
        write("inner/c.toml", "x = 1"),
        write("inner/c.toml", "x = 2"),
    ]
    assert len(set(seen)) == len(seen)
    assert write("inner/a.cpython-311.pyc", "compiled") == seen[-1]
    assert (tmp_path / "a.py").rename(tmp_path / "d.py")
    assert source_digest(tmp_path) not in seen


def test_a_checkout_has_a_commit_and_an_installation_does_not(tmp_path: Path) -> None:
    """Also not one in the environment of another project, whose commit says nothing about it."""
    package = tmp_path / "project" / "package"
    package.mkdir(parents=True)
    (package / "_version.py").touch()
    assert provenance._commit(package) is None

    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        done = subprocess.run(
            ["git", "-C", str(package.parent), *who, *words], capture_output=True, check=True
        )
        return done.stdout.decode().strip()

    git("init")
    git("commit", "--allow-empty", "-m", "first")
    assert provenance._commit(package) is None
    git("add", ".")
    git("commit", "-m", "second")
    assert provenance._commit(package) == git("rev-parse", "HEAD")


def test_every_result_says_which_code_made_it() -> None:
    assert code()["source"] == source_digest(Path(bvat.__file__).parent)
    assert code().items() <= versions().items()


def test_results_of_stored_runs_name_the_sources_of_these_runs(tmp_path: Path) -> None:
    """A run that earlier code has finished is used again, but not as if the present code had made it."""
    graph = synthetic_graph(120, 300, features=20, classes=3, train_per_class=4, val=20, test=30)
    save_graph(graph, tmp_path / "small.npz")
    plan = ComparisonPlan((str(tmp_path / "small.npz"),), ("gcn",), (3,), splits=1, val=20)
    request = Request(datasets=[str(tmp_path / "small.npz")], methods=["gcn"], seeds={"*": 1})
    short = {"epochs": 2, "pretrain": 0}

    def results() -> list[Any]:
        comparison = compare(replace(plan, overrides=short), tmp_path / "compare", jobs=1)
        table = reproduce(["table2"], replace(request, overrides={"epochs": 2}), tmp_path / "paper", jobs=1)
        return [comparison, table["table2"]]

    now = code()["source"]
    for result in results():
        assert (result["versions"]["source"], result["sources"]) == (now, [now])
    for path in [*tmp_path.rglob("seed-0/result.json"), *tmp_path.rglob("cells/*.json")]:
        content = json.loads(path.read_text("utf-8").replace(str(now), "0123456789abcdef"))
        content.pop("checksum")
        write_sealed_json(path, content)
    comparison, table = results()
    for result in (comparison, table):
        assert (result["versions"]["source"], result["sources"]) == (now, ["0123456789abcdef"])
    for page in (compare_page(comparison), paper_page({"table2": table})):
        assert "Some of the runs were finished before, with source 0123456789abcdef" in page


def test_seeds_of_different_sources_are_mentioned(tmp_path: Path) -> None:
    graph = synthetic_graph(120, 300, features=20, classes=3, train_per_class=4, val=20, test=30)
    settings = preset("", "none", epochs=2)
    one = seed_result(train(graph, settings), 1.0)
    assert one["versions"] == versions()
    assert summary_of(graph, settings, [one, {**one, "seed": 1}])["events"] == []
    other = {**one, "seed": 1, "versions": {**versions(), "source": "0123456789abcdef"}}
    (said,) = summary_of(graph, settings, [one, other])["events"]
    assert said.startswith(
        f"the seeds were trained with different sources of bvat {__version__}: 0123456789abcdef"
    )
