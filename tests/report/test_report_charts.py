"""Charts: lines, bars, and drawings as standalone files."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from page_checks import EVIL, check_page

from bvat.report.charts import SERIES, Chart, Line, bar_chart, line_chart, standalone, style
from bvat.report.svg import DARK, LIGHT

SVG = "{http://www.w3.org/2000/svg}"


def texts(content: str) -> list[str]:
    """Return the texts of a standalone file."""
    return ["".join(element.itertext()) for element in ET.fromstring(content).iter(f"{SVG}text")]


def drawn(chart: Chart) -> Axes:
    ax = Figure().add_subplot()
    with style():
        chart.draw(ax)
        ax.figure.draw_without_rendering()
    return ax


@pytest.mark.parametrize("value", [0.0, 20.0, 100 / 3, 1000 / 11, -5.0, 1e-9, 1e300])
def test_an_axis_of_values_that_tie_has_a_width(value: float) -> None:
    for dust in (0.0, 7e-15, 3e-14, 1e-13):  # what rounding leaves of the spread of equal means
        ax = drawn(line_chart([Line("a", [0, 1], [value, value + dust * abs(value)])], "x", "y"))
        low, high = ax.get_ylim()
        assert low < value < high
        labels = [tick.get_text() for tick in ax.get_yticklabels()]
        assert value > 1e100 or len(set(labels)) == len(labels), "ticks that cannot be told apart"


def test_a_chart_leaves_out_what_is_not_finite() -> None:
    line = Line("a", [0, 1, 2], [1.0, math.nan, 3.0], [0.1, 0.1, math.inf], marks=True)
    assert drawn(line_chart([line], "x", "y")).lines[0].get_ydata().tolist() == [1.0]
    for lines in ([Line("a", [0], [math.nan])], []):
        assert "nothing to draw" in line_chart(lines, "x", "y").svg()


def test_logarithmic_axis() -> None:
    line = Line("a", [16, 64, 256], [1.0, 10.0, 90.0], [2.0, 1.0, 1.0])
    ax = drawn(line_chart([line], "width", "ms", log_x=True, x_ticks=[16, 64, 256]))
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "linear")
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["16", "64", "256"]


def test_the_floor_is_the_low_end_of_the_axis() -> None:
    assert drawn(line_chart([Line("a", [0, 1], [5.0, 6.0])], "x", "y", floor=0)).get_ylim()[0] == 0


def test_bars_leave_gaps_for_missing_values() -> None:
    groups = {"cora": {"gcn": 1.0, "vat": None}, "nell": {"gcn": 20.0, "vat": 30.0}}
    ax = drawn(bar_chart(groups, "ms", reference=1))
    assert [len(container) for container in ax.containers] == [2, 1]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["cora", "nell"]


def test_bars_have_the_looks_that_are_given() -> None:
    ax = drawn(bar_chart({"cora": {"vat": 2.0, "other": 1.0}}, "ms", looks={"vat": ("VAT", 6)}, reference=1))
    assert ax.get_legend_handles_labels()[1] == ["VAT", "other"]
    assert [to_hex(bar.get_facecolor()) for bar in ax.patches] == [LIGHT["c6"], LIGHT["c1"]]


def sample_charts() -> list[Chart]:
    line = Line("ours", [0, 1, 2], [1.0, 2.0, 3.0], [0.1, 0.1, 0.1], 2, marks=True)
    paper = Line("the paper", [0, 1], [1.1, 2.2], colour=2, dashed=True, marks=True)
    return [line_chart(lines, "T", "R_vadv", title=title) for title, lines in
            (("left", [line, paper]), ("right", [line]))]  # fmt: skip


def test_standalone_file_is_complete() -> None:
    content = standalone("A title", sample_charts())
    assert content == standalone("A title", sample_charts())
    shown = texts(content)
    assert {"A title", "left", "right", "T", "R_vadv"} <= set(shown)
    # a legend that serves both panels is shown once
    assert (shown.count("ours"), shown.count("the paper")) == (1, 1)
    root = ET.fromstring(content)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "title", "style", "g", "text", "path", "defs", "use"}  # fmt: skip
    assert not re.search(r"var\(|url\(|@import|<script|matplotlib", content)
    assert not re.search(r'href="[^#]', content)
    for name in ("page", "soft", "grid", "c2"):
        assert LIGHT[name] in content
        assert f': {LIGHT[name]}"]' in content
        assert DARK[name] in content
    width, height = (float(root.get(name, 0)) for name in ("width", "height"))
    assert root.get("viewBox") == f"0 0 {width:g} {height:g}"


def test_a_chart_in_a_page_follows_its_colours_and_has_no_names_that_clash() -> None:
    content = "".join(chart.svg() for chart in sample_charts())
    seen = check_page(f"<main>{content}</main>")
    assert {"ours", "the paper"} <= set(seen.words)
    assert "var(--c2)" in content
    assert not set(re.findall("#[0-9a-f]{6}", content)) & set(LIGHT.values())
    names = re.findall(r' id="([^"]+)"', content)
    assert len(set(names)) == len(names) > 0
    assert 'role="img" aria-label="R_vadv against T: ours, the paper"' in content
    assert "<style" not in content


def test_legends_that_differ_are_shown_below_their_panels() -> None:
    charts = [line_chart([Line(name, [1, 2], [1, 2])], "x", "y") for name in ("one", "two")]
    assert [text for text in texts(standalone("t", charts)) if text in ("one", "two")] == ["one", "two"]


def test_long_titles_are_wrapped() -> None:
    title = "a rather long title " * 8
    lines = [text for text in texts(standalone(title.strip(), sample_charts()[:1])) if "title" in text]
    assert " ".join(" ".join(lines).split()) == title.strip()
    assert len(lines) > 1


@pytest.mark.parametrize("name", [EVIL, "$\\frac$", "_hidden", "\u4e2d\u6587", "long " * 100])
def test_names_cannot_break_a_file(name: str) -> None:
    content = standalone(name, [line_chart([Line(name, [0, 1], [0, 1], marks=True)], name[:60], name[:60])])
    assert "<script" not in content
    shown = [text.strip("\N{ZERO WIDTH SPACE}").rstrip("…") for text in texts(content)]
    assert sum(name.startswith(text) and text != "" for text in shown) >= 3
    assert name[:20] in " ".join(texts(standalone("t", [bar_chart({name[:40]: {name: 1.0}}, "y")])))


def test_colours_of_the_palette_differ_and_agree_with_the_style() -> None:
    assert len(set(LIGHT.values())) == len(LIGHT) == len(DARK)
    with style():
        used = matplotlib.rcParams
        assert used["axes.prop_cycle"].by_key()["color"] == SERIES
        for key, name in (("text.color", "soft"), ("axes.edgecolor", "line"), ("grid.color", "grid"),
                          ("figure.facecolor", "page")):  # fmt: skip
            assert used[key].lstrip("#") == LIGHT[name].lstrip("#")


def test_a_bar_of_height_0_has_its_colour_in_the_legend() -> None:
    ax = drawn(bar_chart({"a": {"up": 2.0, "equal": 0.0, "none": None}, "b": {"none": 1.0}}, "gain"))
    assert [len(bars) for bars in ax.containers] == [1, 1, 1]
    assert [to_hex(bars[0].get_facecolor()) for bars in ax.containers] == [c.lower() for c in SERIES[:3]]


def test_bars_of_negative_values_hang_down_from_zero() -> None:
    ax = drawn(bar_chart({"a": {"up": 2.0, "down": -1.0}}, "gain", reference=0.0))
    assert [(bar.get_y(), bar.get_height()) for bar in ax.patches] == [(0, 2.0), (0, -1.0)]


@pytest.mark.slow
def test_a_first_import_without_a_home_says_nothing(tmp_path: Path) -> None:
    """matplotlib then keeps its fonts in a temporary folder, which it would mention."""
    code = (
        "from bvat.report.charts import Line, line_chart as c; c([Line('a', [0, 1], [0, 1])], '', '').svg()"
    )
    (tmp_path / "home").write_text("not a folder")
    where = {
        "HOME": str(tmp_path / "home"),
        "XDG_CONFIG_HOME": "/dev/null/a",
        "XDG_CACHE_HOME": "/dev/null/b",
    }
    environment = {k: v for k, v in os.environ.items() if k != "MPLCONFIGDIR"} | where
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True,
                          text=True, timeout=300)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
