"""Parts, checkpoints, classifiers, runs and pickles of others, changed and sealed again: see ``hostile``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hostile import KINDS
from tally import Tally, times

EACH = times(1_200, 40)


@pytest.mark.timeout(3000)
def test_hostile_binaries(tmp_path: Path, tally: list[Tally]) -> None:
    tally += [Tally("Fuzzing", f"sealed again: {kind}", "used, or refused in one sentence") for kind in KINDS]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    script, done, failures = Path(__file__).with_name("hostile.py"), 0, []
    while done < EACH * len(KINDS):
        command = [sys.executable, "-P", str(script), str(tmp_path), str(done), str(EACH)]
        process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        lines = process.stdout.splitlines()
        assert lines, process.stderr  # it did not get as far as the first mutation
        for line in lines:
            number, _, answer = line.partition(" ")
            good = answer.startswith(("accepted", "refused "))
            entry = tally[int(number) // EACH]
            entry.count(good, traceback=not good)
            said = answer or f"killed it: {process.returncode}"
            failures += [] if good else [f"{entry.fault}, mutation {number}: {said}"]
            done = int(number) + 1
    assert not failures, f"{len(failures)}: {failures[:5]}"
