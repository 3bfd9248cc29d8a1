from __future__ import annotations

from typing import Any

import pytest

from bvat.bench import growth as module
from bvat.bench.growth import fit_all, fit_exponent, measure_growth, points
from bvat.bench.plan import Growth


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
    growth = Growth()
    made = list(points(growth))
    assert all(2 * point["edges"] == 20 * point["nodes"] for point in made)
    assert {p["edges"] for p in made if p["axis"] == "edges"} >= {10**4, 10**5, 10**6, 10**7}
    assert {p["features"] for p in made if p["axis"] == "features"} >= {10**2, 10**5}
    assert {p["hidden"] for p in made if p["axis"] == "hidden"} >= {16, 256}
    for point in made:
        others = {"edges", "features", "hidden"} - {point["axis"]}
        assert all(point[name] == getattr(growth, f"base_{name}") for name in others)


def test_small_graphs_do_not_enter_the_exponent_of_edges() -> None:
    growth = Growth(methods=("obvat",))
    measured: list[dict[str, Any]] = [
        {"axis": "edges", "method": "obvat", "edges": 10**k, "epoch_ms": max(10.0**k, 1e5), "peak_mb": 7.0}
        for k in range(4, 8)
    ]
    fitted = fit_all(measured, growth)
    assert fitted["edges"]["obvat"]["epoch_ms"] == pytest.approx(1.0)
    assert fitted["edges"]["obvat"]["peak_mb"] == pytest.approx(0.0)
    assert fitted["hidden"]["obvat"] == {"epoch_ms": None, "peak_mb": None}


def test_a_point_that_fails_is_reported_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(cell: Any) -> dict[str, Any]:
        edges = cell.source["edges"]
        return {"reason": "too large"} if edges == 10**7 else {"epoch_ms": edges / 1e3, "peak_mb": 1.0}

    monkeypatch.setattr(module, "run_cell", fake)
    logged: list[str] = []
    result, failed = measure_growth(Growth(features=(), hidden=(), methods=("obvat",)), logged.append)
    assert [point["edges"] for point in result["points"]][-1] == 3 * 10**6
    assert failed == ["growth, obvat at edges 10000000: too large"]
    assert result["exponent"] == pytest.approx(1.0)
    assert len(logged) == len(Growth().edges)


def test_the_point_where_the_axes_meet_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Any] = []

    def fake(cell: Any) -> dict[str, Any]:
        measured.append(cell)
        return {"epoch_ms": 1.0, "peak_mb": 1.0}

    monkeypatch.setattr(module, "run_cell", fake)
    growth = Growth(edges=(100_000,), features=(1_000,), hidden=(16,), methods=("gcn",))
    result, _ = measure_growth(growth, lambda _: None)
    assert (len(measured), len(result["points"])) == (1, 3)
