"""Parts of a graph that are damaged, and ranks that are killed or stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tally import Tally, times
from test_damage import damage_all

import rank_faults
from bvat.data import synthetic_graph
from bvat.parts.folder import check_parts, read_about, read_part, whole_graph
from bvat.training.provenance import graph_fingerprint
from rank_runs import cut_into


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    graph = synthetic_graph(nodes=60, edges=150, features=20, classes=3, train_per_class=5, val=15, test=20)
    cut_into(graph, 2, tmp_path / "parts", "random")
    return tmp_path / "parts"


def as_a_rank(folder: Path) -> Any:
    """What both ranks read."""
    found = [read_part(folder, number, read_about(folder)) for number in (0, 1)]
    return [[part.nodes.tolist(), part.values.tolist(), rest["labels"].tolist()] for part, _, rest in found]


READS: dict[str, Callable[[Path], Any]] = {
    "a rank reads": as_a_rank,
    "bvat partition --check": check_parts,
    "joined into one graph": lambda folder: graph_fingerprint(whole_graph(folder)),
}


@pytest.mark.parametrize("how", READS)
def test_damaged_parts(how: str, parts: Path, tally: list[Tally]) -> None:
    for path in sorted(path for path in parts.rglob("*") if path.is_file()):
        if path.parent.name == "part-1":  # like those of the first part
            continue
        entry = Tally(
            "damage", f"partition, {how}: {path.name}", "refused in one sentence, or the same answer"
        )
        tally.append(entry)
        refused = damage_all(entry, path, lambda: READS[how](parts), READS[how](parts))
        needed = refused > 0 or how == "bvat partition --check"  # other ways to read do not need every file
        assert refused == (entry.tried if needed else 0), path.name


def test_killed_ranks(parts: Path, tmp_path: Path, tally: list[Tally]) -> None:
    kills = times(20, 1)
    entry = Tally(
        "kills", "torchrun --max-restarts: a rank, SIGKILL", "restarted, bit-identical to an undisturbed run"
    )
    tally.append(entry)
    found = rank_faults.kill_ranks(parts, tmp_path, ranks=2, times=kills, epochs=60)
    assert found["kills"] == kills
    for row in found["runs"]:
        if not row["killed"]:  # it had finished before
            assert row["same"]
            continue
        entry.count(row["same"], lost=not row["same"])


def test_stopped_rank(parts: Path, tmp_path: Path, tally: list[Tally]) -> None:
    entry = Tally("kills", "torchrun: a rank, SIGSTOP", "all end within the time-out, one sentence")
    tally.append(entry)
    found = rank_faults.stop_rank(parts, tmp_path / "run", ranks=2, epochs=100_000, timeout=5)
    ended = found["returncode"] != 0 and not found["left"] and found["seconds"] < 5 + 15
    assert "another rank did not answer in time" in found["said"][0]
    entry.count(
        ended and len(found["said"]) == 1, traceback=any("Traceback" in line for line in found["said"])
    )
