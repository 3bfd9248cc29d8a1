"""Parts, checkpoints, classifiers, runs and pickles of others, changed and sealed again: see ``hostile``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hostile import KINDS
from tally import Tally, times

HERE = Path(__file__).parent


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_binaries(kind: str, tmp_path: Path, tally: list[Tally]) -> None:
    entry = Tally("Fuzzing", f"sealed again: {kind}", "used, or refused in one sentence")
    tally.append(entry)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done, total, failures = 0, times(1_200, 40), []
    while done < total:
        command = [sys.executable, "-P", str(HERE / "hostile.py"), kind, str(tmp_path), str(done), str(total)]
        process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
        lines = process.stdout.splitlines()
        assert lines, process.stderr  # it did not get as far as the first mutation
        for line in lines:
            number, _, answer = line.partition(" ")
            good = answer.startswith(("accepted", "refused "))
            entry.count(good, traceback=not good)
            failures += [] if good else [answer or f"mutation {number} killed it: {process.returncode}"]
            done = int(number) + 1
    assert not failures, f"{len(failures)} of {total}: {failures[:5]}"
