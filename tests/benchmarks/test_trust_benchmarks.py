"""The benchmarks of trust and of suggestions: draws that are in the file are kept, and the targets judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import suggest
import trust
import trust_times
from bvat import synthetic_graph
from trust_summary import regained


def written(folder: Path, name: str) -> tuple[list[int], dict[str, Any]]:
    lines = (folder / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line)["draw"] for line in lines], json.loads((folder / f"{name}.json").read_text())


@pytest.mark.slow
def test_draws_of_suggestions_continue_and_are_summarised(small_file: Path, tmp_path: Path) -> None:
    for draws in ("40", "40,41"):
        suggest.main([str(small_file), "--draws", draws, "--out", str(tmp_path)])
    draws_found, found = written(tmp_path, "suggest")
    assert draws_found == [40, 41]
    assert isinstance(found["gain_at_10"], float)
    halves = found["graphs_with_half_the_labels"]
    assert set(halves["at one of these numbers"]) == {graph for graphs in halves.values() for graph in graphs}


@pytest.mark.slow
def test_wrong_labels_are_added_to_draws_that_are_there(small_file: Path, tmp_path: Path) -> None:
    trust.main([str(small_file), "--draws", "40,41", "--out", str(tmp_path)])
    draws_found, found = written(tmp_path, "trust")
    assert draws_found == [40, 41]
    assert found["regained"] is None
    trust.main([str(small_file), "--draws", "40", "--out", str(tmp_path), "--flip"])
    draws_found, found = written(tmp_path, "trust")
    assert draws_found == [40, 41, 40], "what was known was measured again"
    (row,) = found["by_graph"].values()
    assert row["draws"] == [40, 41]
    assert row["flipped"]["draws"] == [40]
    assert found["runs"] == 2
    assert "at least half of the lost accuracy is regained" in found["targets"]


def test_what_is_regained_is_a_ratio_of_means_beside_the_mean_of_ratios() -> None:
    found = regained([{"lost": 4.0, "regained": 2.0}, {"lost": 0.1, "regained": -0.1}])
    assert found["of_means"] == pytest.approx(1.9 / 4.1)
    assert found["mean_of_ratios"] == pytest.approx((0.5 - 1) / 2)


def test_the_timed_graph_has_no_labels_but_those_of_its_training_nodes() -> None:
    graph = trust_times.labelled_graph(400, 900, 100)
    known = (graph.labels >= 0).nonzero()[:, 0]
    assert known.tolist() == graph.train.tolist()
    assert len(known) == trust_times.LABELS * synthetic_graph(400, 900, 100).num_classes
