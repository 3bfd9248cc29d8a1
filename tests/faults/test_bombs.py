"""Small files that claim or unpack to far more than they hold: read or refused within a stated memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bombs import BOMBS
from tally import Tally

from bvat.data.readers.folder import open_table

LIMIT = 512
"""What the memory of the process may rise by, in MiB; the documentation states it."""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak of the memory is read from /proc")
def test_bombs_stay_within_the_memory(tally: list[Tally], tmp_path: Path) -> None:
    entry = Tally(
        "Hostile files",
        "bombs: claims of 10^12 entries, endless lines",
        f"read or refused, below {LIMIT} MiB",
    )
    tally.append(entry)
    command = [sys.executable, str(Path(__file__).with_name("bombs.py")), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    for bomb in found:
        small = bomb["mb"] < LIMIT
        entry.count(
            small and bomb["ended"] != "traceback", lost=not small, traceback=bomb["ended"] == "traceback"
        )
    bad = [bomb for bomb in found if bomb["mb"] >= LIMIT or bomb["ended"] == "traceback"]
    assert not bad
    assert [bomb["bomb"] for bomb in found] == [bomb.__name__ for bomb in BOMBS], done.stderr
    read = {bomb["bomb"] for bomb in found if bomb["ended"] == "read"}
    assert read == {"csv_columns"}  # odd, but valid


def test_time_grows_with_the_columns_not_with_their_square(tmp_path: Path) -> None:
    def seconds(width: int) -> float:
        path = tmp_path / f"{width}.csv"
        names = [f"c{k}" for k in range(width)]
        path.write_text("id,label," + ",".join(names) + "\nn,x" + ",1" * width + "\n")
        best = 1e9
        for _ in range(3):
            started = time.process_time()
            list(open_table(path).blocks(["id", "label"], names))
            best = min(best, time.process_time() - started)
        return best

    assert seconds(24_000) < 40 * seconds(3_000)  # 8 times the columns: 8 is linear, 64 is quadratic
