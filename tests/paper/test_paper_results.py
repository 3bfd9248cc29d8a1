"""The paper's figures as data, and the words made from numbers."""

from __future__ import annotations

from typing import Any

import pytest

from bvat.paper import published as paper
from bvat.paper.claims import (
    fig1a_claims,
    listed,
    number,
    sweep_claims,
    table2_claims,
    time_claims,
    trained_claims,
)
from bvat.paper.published import Published
from bvat.paper.request import ROWS
from bvat.paper.table2 import verdict
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
        assert tuple(paper.table2(method, d).mean for d in paper.datasets("table2")) == row  # type: ignore[union-attr]
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
    assert book["time"]["seconds"]["obvat"] / book["time"]["seconds"]["gcn"] == pytest.approx(3.0, abs=0.01)


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


def cells(**means: dict[str, float]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for method, row in means.items():
        for dataset, mean in row.items():
            published = paper.table2(method, dataset)
            ours: dict[str, Any] = {"mean": mean}
            if published is not None:
                ours["difference"] = mean - published.mean
                ours["verdict"] = verdict(sample([mean - 0.1, mean + 0.1]), published)
            cell = {"paper": published and published._asdict(), "last": ours}
            found.setdefault(method, {})[dataset] = cell
    return found


def test_words_of_a_table_that_reproduces() -> None:
    claims = table2_claims(
        cells(gcn={"cora": 81.5}, vat={"cora": 82.0}, sbvat={"cora": 83.4}, obvat={"cora": 84.0})
    )
    assert [claim["holds"] for claim in claims] == [True, True, True]
    assert claims[0]["text"] == (
        "VAT, S-BVAT and O-BVAT on Cora: 3 of 3 means are at or above the paper's mean minus one standard "
        "deviation, 2 of 3 at or above the mean itself."
    )
    assert claims[2]["text"].endswith("GCN < VAT < S-BVAT < O-BVAT, is found on Cora.")


def test_words_of_a_table_that_falls_short() -> None:
    claims = table2_claims(cells(gcn={"cora": 81.5, "nell": 66.0}, obvat={"cora": 82.9, "nell": 64.0},
                                 consistency={"cora": 83.5, "nell": 65.0}))  # fmt: skip
    assert [claim["holds"] for claim in claims] == [False, False, True, False, None]
    assert "Below: O-BVAT on Cora (82.9, published: 83.6 ± 0.5)." in claims[0]["text"]
    assert "O-BVAT on NELL: 0 of 1" in claims[1]["text"]
    assert "not on NELL (O-BVAT < GCN)." in claims[3]["text"]
    assert "consistency 2.0 on Cora and −1.0 on NELL; O-BVAT 1.4 on Cora" in claims[4]["text"]


def panel(title: str, dropout: str = "on", **lines: list[float]) -> dict[str, Any]:
    series = [{"name": k, "label": k, "mean": v, "paper": None} for k, v in lines.items()]
    return {"title": title, "dropout": dropout, "series": series}


def test_words_of_figure_1() -> None:
    good = panel("Cora", vat=[0.3, 0.7, 0.75], sbvat=[0.4, 1.2, 1.1], obvat=[0.2, 0.4, 0.8])
    assert [claim["holds"] for claim in fig1a_claims(good)] == [True] * 4
    bad = panel("Cora", vat=[0.3, 0.35, 0.75], sbvat=[0.4, 0.9, 0.7], obvat=[0.2, 0.4, 0.3])
    assert [claim["holds"] for claim in fig1a_claims(bad)] == [False, True, False, False]
    assert [c["holds"] for c in fig1a_claims(panel("Cora", "off", vat=[0.0, 0.2, 0.5]))] == [None]
    assert trained_claims(panel("Cora", gcn=[0.1, 0.5, 0.6], sbvat=[0.2, 0.4, 0.3]), "S-BVAT")[0]["holds"]
    assert not trained_claims(panel("Cora", gcn=[0.1, 0.5, 0.6], sbvat=[0.0, 0.4, 0.7]), "S-BVAT")[0]["holds"]


def test_the_papers_own_series_have_the_shape_it_claims() -> None:
    assert [claim["holds"] for claim in fig1a_claims(panel("Cora", **paper.paper()["fig1"]["a"]))] == [
        True
    ] * 4
    for part in ("b", "c"):
        lines = {name: paper.paper()["fig1"][part][name] for name in ("without", "with")}
        assert trained_claims(panel("Cora", **lines), "BVAT")[0]["holds"]


def test_words_of_sweeps_and_times() -> None:
    line = {"label": "S-BVAT", "mean": [80.0, 81.0], "paper": [80.5, 80.2]}
    claim = sweep_claims({"title": "Cora", "series": [line]}, [0.1, 0.2], "epsilon")[0]
    assert claim["holds"]
    assert "best validation accuracy 81.0 % at epsilon = 0.2 (paper: 80.5 % at 0.1)" in claim["text"]
    assert "−0.5 to 0.8" in claim["text"]
    assert sweep_claims({"title": "Cora", "series": [{**line, "paper": None, "compare": line["paper"]}]},
                        [0.1, 0.2], "epsilon") == [claim]  # fmt: skip
    far = {**line, "mean": [70.0, 71.0]}
    assert not sweep_claims({"title": "Cora", "series": [far]}, [0.1, 0.2], "epsilon")[0]["holds"]
    text = time_claims("cora", {"gcn": 1.0, "obvat": 4.0}, {"gcn": 1.0, "sbvat": 1.1, "obvat": 3.0})
    assert [claim["text"] for claim in text] == [
        "An epoch of O-BVAT on Cora takes 4.0 times as long as a GCN's (paper: 3.0, on a GPU)."
    ]


def test_small_words() -> None:
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert (number(-0.04), number(-1.25, 2)) == ("0.0", "−1.25")
