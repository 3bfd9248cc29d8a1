"""What is released: the content of wheel and sdist, and who may publish."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from bvat import __version__

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], set[str]]:
    """The names of all files in the wheel and in the sdist."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", folder], cwd=ROOT, check=True, timeout=300
    )
    with zipfile.ZipFile(folder / f"bvat-{__version__}-py3-none-any.whl") as wheel:
        names = set(wheel.namelist())
    with tarfile.open(folder / f"bvat-{__version__}.tar.gz") as sdist:
        return names, {name.split("/", 1)[1] for name in sdist.getnames()}


@pytest.mark.slow
def test_the_wheel_has_the_package_and_nothing_else(built: tuple[set[str], set[str]]) -> None:
    wheel, _ = built
    about = f"bvat-{__version__}.dist-info"
    source = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/bvat").rglob("*.*")}
    assert {name for name in wheel if not name.startswith(about)} == {
        name for name in source if "__pycache__" not in name
    }
    assert {"bvat/py.typed", f"{about}/licenses/LICENSE", f"{about}/entry_points.txt"} <= wheel


@pytest.mark.slow
def test_the_sdist_has_what_its_tests_read(built: tuple[set[str], set[str]]) -> None:
    _, sdist = built
    for folder in ("src", "tests", "benchmarks", "docs", "examples", ".github"):
        files = [path for path in (ROOT / folder).rglob("*.*") if path.is_file()]
        kept = [path for path in files if "__pycache__" not in path.parts]
        assert {path.relative_to(ROOT).as_posix() for path in kept} <= sdist
    assert {"results/bench/bench.json", "mkdocs.yml", "CITATION.cff", "CONTRIBUTING.md", ".ci/smoke"} <= sdist


@pytest.fixture(scope="module")
def jobs() -> Any:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text("utf-8"))["jobs"]


def test_only_a_tag_publishes_and_only_what_was_tested(jobs: Any) -> None:
    publish = jobs["publish"]
    assert publish["if"] == "github.event_name == 'push' && startsWith(github.ref, 'refs/tags/v')"
    assert (publish["needs"], jobs["install"]["needs"]) == ("install", "build")
    assert publish["environment"] == "pypi"
    may = {name for name, job in jobs.items() if "id-token" in job.get("permissions", {})}
    assert may == {"publish"}


def test_a_tag_is_refused_until_the_checkout_is_ready() -> None:
    for tag, message in (("v9.9.9", f"_version.py says {__version__}"), (__version__, "the tag is")):
        done = subprocess.run([ROOT / ".ci/check_tag", tag], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert message in done.stderr
