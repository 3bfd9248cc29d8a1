"""The benchmarks of trust and of suggestions: draws that are in the file are kept, and the targets judged."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

import suggest
import trust


@pytest.mark.slow
@pytest.mark.parametrize(("benchmark", "measured"), [(trust, "regained"), (suggest, "gain_at_10")])
def test_draws_continue_and_are_summarised(
    benchmark: ModuleType, measured: str, small_file: Path, tmp_path: Path
) -> None:
    name = benchmark.__name__
    for draws in ("40", "40,41"):
        benchmark.main([str(small_file), "--draws", draws, "--out", str(tmp_path)])
    lines = [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
    assert [line["draw"] for line in lines] == [40, 41]
    found = json.loads((tmp_path / f"{name}.json").read_text())
    assert isinstance(found[measured], float)
    assert found["targets"]
