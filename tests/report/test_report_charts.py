"""Charts: axes, lines, bars, and drawings as standalone files."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from bvat.report.charts.axes import fitted_axis, log_ticks, tick_label
from bvat.report.html import Markup, page
from bvat.report.palette import DARK, LIGHT
from page_checks import EVIL, check_page

from bvat.report.charts import Drawing, Line, bar_chart, line_chart, standalone, ticks

SVG = "{http://www.w3.org/2000/svg}"


def texts(content: str) -> list[str]:
    """Return the texts of a standalone file."""
    return ["".join(element.itertext()) for element in ET.fromstring(content).iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (0.23, 1.29), (76.2, 81.3), (-3.0, -2.9), (5.0, 5.0), (0, 0)]
)
def test_ticks_are_round_and_cover(low: float, high: float) -> None:
    found = ticks(low, high)
    assert found[0] <= low
    assert found[-1] >= high
    assert 2 <= len(found) <= 12
    steps = {round(b - a, 9) for a, b in pairwise(found)}
    assert len(steps) == 1


@pytest.mark.parametrize("cover", [True, False])
@pytest.mark.parametrize("value", [0.0, 20.0, 100 / 3, 1000 / 11, -5.0, 1e-9, 1e300])
def test_an_axis_of_values_that_tie_has_a_width(value: float, cover: bool) -> None:
    for dust in (0.0, 7e-15, 3e-14, 1e-13):  # what rounding leaves of the spread of equal means
        axis = fitted_axis("", [value, value + dust], cover=cover)
        assert axis.low < axis.high
        assert -1e-9 <= axis.at(value) <= 1 + 1e-9


def test_a_chart_leaves_out_what_is_not_finite() -> None:
    line = Line("a", [0, 1, 2], [1.0, math.nan, 3.0], [0.1, 0.1, math.inf], marks=True)
    chart = line_chart([line], "x", "y").figure()
    assert "nan" not in chart
    assert "inf" not in chart
    assert "nothing to draw" in line_chart([Line("a", [0], [math.nan])], "x", "y").body
    assert "nothing to draw" in line_chart([], "x", "y").body


@pytest.mark.parametrize(("low", "high", "expected"), [
    (0.5, 3e4, [0.1, 1, 10, 100, 1000, 10_000, 100_000]),
    (3, 60, [2, 5, 10, 20, 50, 100]),
    (10, 10, [10, 20]),
])  # fmt: skip
def test_logarithmic_ticks_are_round_and_cover(low: float, high: float, expected: list[float]) -> None:
    assert log_ticks(low, high) == expected


def test_places_on_axes() -> None:
    log = fitted_axis("", [1, 100], log=True)
    assert [log.at(value) for value in (1, 10, 100)] == pytest.approx([0, 0.5, 1])
    assert log.at(0.01) == 0  # a band that reaches below the axis ends there
    sizes = fitted_axis("", [16, 64, 256], log=True, cover=False, at=[16, 64, 256])
    assert list(sizes.ticks) == [16, 64, 256]
    assert 0 < sizes.at(16) < sizes.at(64) == pytest.approx(0.5)
    linear = fitted_axis("", [0, 7])
    assert (linear.at(linear.low), linear.at(linear.high)) == (0, 1)


@pytest.mark.parametrize(("value", "expected"), [(0, "0"), (0.025, "0.025"), (1000, "1000"),
                                                 (30_000, "30k"), (10_000_000, "10M")])  # fmt: skip
def test_numbers_at_ticks_are_short(value: float, expected: str) -> None:
    assert tick_label(value) == expected


def test_logarithmic_chart_leaves_out_what_is_not_positive() -> None:
    line = Line("a", [0, 1, 10, 100], [5.0, 1.0, 0.0, 100.0], marks=True)
    chart = line_chart([line], "x", "y", log_x=True, log_y=True)
    assert re.findall(r"a: \S+ at \S+?(?=<)", chart.body) == ["a: 1 at 1", "a: 100 at 100"]


def test_bars_have_heights_by_their_values_and_gaps_where_they_are_missing() -> None:
    groups = {"cora": {"a": 1.0, "b": 2.0}, "nell": {"a": None, "b": 4.0}}
    heights = [float(height) for height in re.findall(r'height="([\d.]+)"', bar_chart(groups, "ms").body)]
    assert heights == pytest.approx([heights[0], 2 * heights[0], 4 * heights[0]], rel=0.01)
    logs = bar_chart({"g": {"a": 1.0, "b": 10.0, "c": 100.0, "d": 0.0}}, "ms", log=True).body
    heights = [float(height) for height in re.findall(r'height="([\d.]+)"', logs)]
    assert heights[2] == pytest.approx(2 * heights[1], rel=0.01)
    assert len(heights) == 3
    assert 'height="' not in bar_chart({"g": {"a": 0.0}}, "MiB", log=True).body


def test_bars_take_titles_and_colours_of_methods() -> None:
    chart = bar_chart({"cora": {"vat": 2.0, "other": 1.0}}, "ms", looks={"vat": ("VAT", 6)}, reference=1)
    assert [key.label for key in chart.keys] == ["VAT", "other"]
    assert "var(--c6)" in chart.body
    assert "var(--c1)" in chart.body


def sample_drawings() -> list[Drawing]:
    line = Line("ours", [0, 1, 2], [1.0, 2.0, 3.0], [0.1, 0.1, 0.1], 2, marks=True)
    paper = Line("the paper", [0, 1], [1.1, 2.2], colour=2, dashed=True, marks=True)
    return [line_chart(lines, "T", "R_vadv", title=title) for title, lines in
            (("left", [line, paper]), ("right", [line]))]  # fmt: skip


def test_standalone_file_is_complete() -> None:
    content = standalone("A title", sample_drawings())
    assert content == standalone("A title", sample_drawings())
    shown = texts(content)
    assert [text for text in shown if text in ("A title", "left", "right")] == ["A title", "left", "right"]
    # a legend that serves both panels is shown once
    assert (shown.count("ours"), shown.count("the paper")) == (1, 1)
    root = ET.fromstring(content)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "title", "style", "rect", "g", "text", "path"}  # fmt: skip
    assert not re.search(r"var\(|href|url\(|@import|<script", content)
    assert (LIGHT["page"], LIGHT["c2"]) == (root.find(f"{SVG}rect").get("fill"), "#007a5a")  # type: ignore[union-attr]
    for name in ("page", "ink", "soft", "grid", "c2"):
        assert f'[fill="{LIGHT[name]}"]{{fill:{DARK[name]}}}' in content
    width, height = (float(root.get(name, 0)) for name in ("width", "height"))
    assert root.get("viewBox") == f"0 0 {width:g} {height:g}"


def test_legends_that_differ_are_shown_below_their_panels() -> None:
    drawings = [line_chart([Line(name, [1, 2], [1, 2])], "x", "y") for name in ("one", "two")]
    assert [text for text in texts(standalone("t", drawings)) if text in ("one", "two")] == ["one", "two"]


def test_long_titles_are_wrapped() -> None:
    title = "a rather long title " * 8
    drawing = Drawing(Markup(""), "nothing")
    lines = [text for text in texts(standalone(title.strip(), [drawing])) if "title" in text]
    assert len(lines) > 1
    assert " ".join(lines) == title.strip()


def test_page_and_file_show_the_same_drawing() -> None:
    drawing = sample_drawings()[0]
    seen = check_page(page("page", drawing.figure("caption")))
    assert {"left", "ours", "the paper", "caption"} <= set(seen.words)
    paths = re.findall(r' d="([^"]+)"', drawing.body)
    assert paths
    assert paths == re.findall(r' d="([^"]+)"', standalone("t", [drawing]))[: len(paths)]


def test_names_cannot_break_a_file() -> None:
    lines = [Line(EVIL, [0, 1], [0, 1], marks=True)]
    content = standalone(EVIL, [line_chart(lines, EVIL, EVIL, title=EVIL)])
    assert "<script" not in content
    assert EVIL in texts(content)
    assert EVIL in texts(standalone("t", [bar_chart({EVIL: {EVIL: 1.0}}, EVIL, title=EVIL)]))


def test_colours_of_the_palette_differ() -> None:
    assert len(set(LIGHT.values())) == len(LIGHT) == len(DARK)


def test_bars_of_negative_values_hang_down_from_zero() -> None:
    drawing = bar_chart({"a": {"up": 2.0, "down": -1.0}}, "gain", reference=0.0)
    bars = re.findall(r'<rect x="[0-9.]+" y="([0-9.]+)" width="[0-9.]+" height="([0-9.]+)"', drawing.body)
    (up_top, up_height), (down_top, down_height) = ([float(number) for number in bar] for bar in bars)
    assert up_top + up_height == pytest.approx(down_top, abs=0.2), "both start at zero"
    assert up_height == pytest.approx(2 * down_height, abs=0.4)
