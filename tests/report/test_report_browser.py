"""Both pages in a browser: they render, and nothing is reported on the console."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from page_checks import made_up_results

from bvat.data.checksums import read_sealed_json
from bvat.report.compare_page import write_compare_files
from bvat.report.pages import render
from bvat.report.paper_page import paper_page

RESULTS = Path(__file__).parents[2] / "results"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next((path for name in NAMES if (path := shutil.which(name))), None)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--hide-scrollbars", "--enable-logging=stderr", "--v=0"]  # fmt: skip

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")


def browse(path: Path, profile: Path, *options: str) -> tuple[str, list[str]]:
    """Open a page; return what the browser prints and the lines its console reported."""
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={profile}", *options, path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def test_the_console_is_really_watched(tmp_path: Path) -> None:
    broken = render("base.html", title="broken").replace(
        "</main>", "</main><script>throw new Error('seen')</script>"
    )
    (tmp_path / "page.html").write_text(broken, "utf-8")
    complaints = browse(tmp_path / "page.html", tmp_path / "profile", "--dump-dom")[1]
    assert any("seen" in line for line in complaints)


@pytest.mark.slow
def test_a_comparison_of_eight_graphs_fits_a_laptop(tmp_path: Path) -> None:
    path = write_compare_files(read_sealed_json(RESULTS / "compare" / "compare.json"), tmp_path)
    measure = "document.title = [...document.querySelectorAll('.results')].map("
    measure += "t => t.offsetWidth - t.parentElement.clientWidth)"
    path.write_text(path.read_text("utf-8").replace("</main>", f"</main><script>{measure}</script>"), "utf-8")
    dom, _ = browse(path, tmp_path / "profile", "--window-size=1200,2000", "--dump-dom")
    found = re.search("<title>(.*)</title>", dom)
    assert found is not None
    beyond = [int(number) for number in found[1].split(",")]
    assert len(beyond) == 2
    assert max(beyond) <= 0, "the table is cut off"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["paper", "run"])
def test_a_page_renders(kind: str, run_folder: Path, tmp_path: Path) -> None:
    path = run_folder / "report.html"
    if kind == "paper":
        path = tmp_path / "report.html"
        path.write_text(paper_page(made_up_results()), "utf-8")
    dom, complaints = browse(path, tmp_path / "profile", "--dump-dom")
    assert complaints == []
    assert "</main>" in dom
    assert dom.count("<svg") == path.read_text("utf-8").count("<svg")
    shot = tmp_path / "shot.png"
    assert browse(path, tmp_path / "profile", "--window-size=390,844", f"--screenshot={shot}")[1] == []
    empty = tmp_path / "empty.html"
    empty.write_text(render("base.html", title=" "), "utf-8")
    blank = tmp_path / "blank.png"
    browse(empty, tmp_path / "profile", "--window-size=390,844", f"--screenshot={blank}")
    assert shot.stat().st_size > 2 * blank.stat().st_size  # something was drawn
