"""The examples run, and what they train is better than chance."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
CASES = [
    ("own_loop_pyg.py", "obvat"),
    ("own_loop_pyg.py", "sbvat"),
    ("custom_model.py",),
    ("own_csv.py",),
    ("estimator.py",),
]


@pytest.mark.parametrize("command", CASES, ids=" ".join)
def test_example_runs_and_learns(command: tuple[str, ...]) -> None:
    if "pyg" in command[0]:
        pytest.importorskip("torch_geometric")
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning:bvat", EXAMPLES / command[0], *command[1:]],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    accuracy = re.search(r"test accuracy ([\d.]+) %", done.stdout)
    assert accuracy is not None, done.stdout
    assert float(accuracy[1]) > 60


def test_every_example_is_short() -> None:
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text("utf-8").splitlines()) <= 60, path.name
