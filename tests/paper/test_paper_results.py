"""The published numbers, verdicts, and results as tables."""

from __future__ import annotations

import pytest

from bvat.paper import request as paper
from bvat.paper.request import ROWS, Published
from bvat.paper.table2 import verdict
from bvat.report.paper_page import figure_tables
from bvat.training.statistics import sample


def test_table2_is_the_papers() -> None:
    means = {
        "gcn": (81.5, 70.3, 79.0, 66.0),
        "random": (82.3, 71.4, 79.2, 65.9),
        "vat": (82.8, 73.0, 79.5, 66.0),
        "sbvat": (83.4, 73.1, 79.6, 66.0),
        "obvat": (83.6, 74.0, 79.9, 67.1),
    }
    for method, row in means.items():
        assert tuple(paper.table2(method, d).mean for d in paper.paper_datasets("table2")) == row  # type: ignore[union-attr]
    assert paper.table2("sbvat", "citeseer") == Published(73.1, 1.3)
    assert paper.table2("gcn", "cora") == Published(81.5, None)
    assert paper.table2("consistency", "cora") is None
    assert set(paper.paper()["table2"]) <= set(ROWS)
    assert set(paper.paper()["table2"]) == set(paper.paper()["source"])


def test_series_have_the_length_of_their_axes() -> None:
    book = paper.paper()
    assert book["fig1"]["steps"] == list(range(11))
    for line in [*book["fig1"]["a"].values(), *book["fig1"]["b"].values()]:
        assert len(line) == 11
    assert [len(line) for line in book["fig1"]["c"].values()] == [10, 10]
    assert book["fig1"]["a"]["obvat"][10] == 0.8998
    assert book["fig1"]["a"]["sbvat"] == book["fig1"]["b"]["without"]
    assert book["fig3"]["epsilon"] == [k / 100 for k in range(1, 11)]
    assert all(len(line) == 10 for line in book["fig3"]["accuracy"].values())
    assert book["fig4"]["alpha"] == [k / 10 for k in range(16)]
    assert all(len(line) == 16 for line in book["fig4"]["accuracy"].values())
    assert book["fig4"]["accuracy"]["sbvat"][11] == 0.8105


def test_sample_knows_the_t_distribution() -> None:
    found = sample([80.0, 82.0, 84.0])
    assert (found.n, found.mean, found.std) == (3, 82.0, 2.0)
    half = 4.302653 * 2 / 3**0.5  # t_{0.975} with two degrees of freedom
    assert (found.low, found.high) == (pytest.approx(82 - half), pytest.approx(82 + half))
    assert sample([5.0]).low == sample([5.0]).high == 5.0


@pytest.mark.parametrize(
    ("mean", "published", "expected"),
    [
        (84.2, Published(83.6, 0.5), "above"),
        (84.1, Published(83.6, 0.5), "within"),
        (83.1, Published(83.6, 0.5), "within"),
        (83.0, Published(83.6, 0.5), "below"),
        (82.5, Published(81.5, None), "within"),  # no deviation published: ours, 1
        (80.0, Published(81.5, None), "below"),
    ],
)
def test_verdict(mean: float, published: Published, expected: str) -> None:
    assert verdict(sample([mean - 1, mean, mean + 1]), published) == expected


def test_figures_as_tables() -> None:
    line = {"label": "VAT", "mean": [0.25, 1.0], "paper": [0.3]}
    figure = {
        "title": "Figure",
        "x": {"label": "T", "values": [0, 1]},
        "panels": [{"title": "Cora", "series": [line]}],
    }
    assert figure_tables(figure) == [("Figure (Cora)", ["T", "0", "1"], [["VAT", "0.25 (0.3)", "1"]])]


def test_data_sets_have_titles() -> None:
    assert (paper.named("nell"), paper.named("somewhere/mine.npz")) == ("NELL", "mine")
