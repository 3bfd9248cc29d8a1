from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cell
import growth
from bvat.bench.measure import Budget
from bvat.data.files import write_json
from growth import Growth, fit_all, fit_exponent, measure_growth, points
from limit import limits_of_growth


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_law_is_found(exponent: float) -> None:
    x = [1e4, 1e5, 1e6, 1e7]
    assert fit_exponent(x, [3.0 * v**exponent for v in x]) == pytest.approx(exponent, abs=1e-12)


def test_the_exponent_is_that_of_least_squares() -> None:
    # on the logarithms of base 10: (0, 0), (1, 2), (2, 1), slope 1 / 2
    assert fit_exponent([1.0, 10.0, 100.0], [1.0, 100.0, 10.0]) == pytest.approx(0.5)


@pytest.mark.parametrize("x", [[], [5.0], [5.0, 5.0]])
def test_no_exponent_without_two_sizes(x: list[float]) -> None:
    assert fit_exponent(x, [1.0] * len(x)) is None


def test_points_keep_the_degree_and_vary_one_axis_each() -> None:
    sizes = Growth()
    made = list(points(sizes))
    assert all(2 * point["edges"] == 20 * point["nodes"] for point in made)
    assert {p["edges"] for p in made if p["axis"] == "edges"} >= {10**4, 10**5, 10**6, 10**7}
    assert {p["features"] for p in made if p["axis"] == "features"} >= {10**2, 10**5}
    assert {p["hidden"] for p in made if p["axis"] == "hidden"} >= {16, 256}
    for point in made:
        others = {"edges", "features", "hidden"} - {point["axis"]}
        assert all(point[name] == getattr(sizes, f"base_{name}") for name in others)


def test_small_graphs_do_not_enter_the_exponent_of_edges() -> None:
    sizes = Growth(methods=("obvat",))
    measured: list[dict[str, Any]] = [
        {"axis": "edges", "method": "obvat", "edges": 10**k, "epoch_ms": max(10.0**k, 1e5), "peak_mb": 7.0}
        for k in range(4, 8)
    ]
    fitted = fit_all(measured, sizes)
    assert fitted["edges"]["obvat"]["epoch_ms"] == pytest.approx(1.0)
    assert fitted["edges"]["obvat"]["peak_mb"] == pytest.approx(0.0)
    assert fitted["hidden"]["obvat"] == {"epoch_ms": None, "peak_mb": None}


def test_a_point_that_fails_is_reported_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(cell: Any) -> dict[str, Any]:
        edges = cell.source["edges"]
        return {"reason": "too large"} if edges == 10**7 else {"epoch_ms": edges / 1e3, "peak_mb": 1.0}

    monkeypatch.setattr(growth, "run_cell", fake)
    result = measure_growth(Growth(features=(), hidden=(), methods=("obvat",)))
    assert [point["edges"] for point in result["points"]][-1] == 3 * 10**6
    assert result["skipped"] == ["obvat at edges 10000000: too large"]
    assert result["exponent"] == pytest.approx(1.0)


def test_the_point_where_the_axes_meet_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Any] = []

    def fake(cell: Any) -> dict[str, Any]:
        measured.append(cell)
        return {"epoch_ms": 1.0, "peak_mb": 1.0}

    monkeypatch.setattr(growth, "run_cell", fake)
    sizes = Growth(edges=(100_000,), features=(1_000,), hidden=(16,), methods=("gcn",))
    assert (len(measure_growth(sizes)["points"]), len(measured)) == (3, 1)


def test_points_are_measured_and_compared_with_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "run_cell", cell.measure)
    budget = Budget(warmup=1, rounds=1, seconds=0.0, min_rounds=1)
    sizes = Growth(edges=(1600,), features=(50,), hidden=(), base_edges=1600, base_features=50, budget=budget)
    found = measure_growth(sizes)
    assert all(p["entries"]["a"] == 2 * p["edges"] + p["nodes"] for p in found["points"])
    write_json(tmp_path / "growth.json", found)
    rows = limits_of_growth(tmp_path / "growth.json", {"memory_gb_s": 1.0, "gflop_s": 1.0})
    assert [(row["method"], row["edges"]) for row in rows] == [("gcn", 1600), ("obvat", 1600)]
