from __future__ import annotations

from bvat.bench.measure import Budget, Times, interleave


def test_actions_run_in_turn() -> None:
    calls: list[str] = []

    def action(name: str) -> float:
        calls.append(name)
        return 1.0

    budget = Budget(warmup=2, rounds=3, seconds=60.0, min_rounds=1)
    times = interleave({"a": lambda: action("a"), "b": lambda: action("b")}, budget)
    assert calls == ["a", "b"] * 5
    assert {name: len(each.epoch) for name, each in times.items()} == {"a": 3, "b": 3}
    assert times["a"].step == [1.0] * 3
    assert len(times["a"].cpu) == 3


def test_rounds_end_with_the_time_but_not_before_the_least() -> None:
    times = interleave({"a": lambda: 0.0}, Budget(warmup=1, rounds=1000, seconds=0.0, min_rounds=4))
    assert len(times["a"].epoch) == 4


def test_settling_runs_a_fast_action_once_more_and_does_not_time_it() -> None:
    calls: list[int] = []

    def action() -> float:
        calls.append(1)
        return float(len(calls))

    budget = Budget(warmup=1, rounds=3, seconds=60.0, min_rounds=1)
    times = interleave({"a": action}, budget, settle_below_ms=1e9)
    assert times["a"].step == [3.0, 5.0, 7.0]


def test_summary_is_robust_to_one_slow_epoch() -> None:
    summary = Times([1.0, 1.0, 1000.0], [0.9, 0.9, 900.0], [0.5, 0.5, 999.0]).summary()
    assert summary == {
        "epoch_ms": 1.0,
        "epoch_ms_p10": 1.0,
        "epoch_cpu_ms": 0.9,
        "epoch_cpu_ms_p10": 0.9,
        "step_ms": 0.5,
        "step_ms_p10": 0.5,
        "epochs": 3,
    }
