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
    ("exported.py",),
    ("minimal.py",),
]


@pytest.mark.slow
@pytest.mark.parametrize("command", CASES, ids=" ".join)
def test_example_runs_and_learns(command: tuple[str, ...]) -> None:
    if "pyg" in command[0]:
        pytest.importorskip("torch_geometric")
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning:bvat", EXAMPLES / command[0], *command[1:]],
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    accuracy = re.search(r"test accuracy ([\d.]+) %", done.stdout)
    assert accuracy is not None, done.stdout
    assert float(accuracy[1]) > 60


def test_every_example_is_run() -> None:
    assert {command[0] for command in CASES} == {path.name for path in EXAMPLES.glob("*.py")}


def test_every_example_is_short() -> None:
    for path in EXAMPLES.glob("*.py"):
        longest = 80 if path.name == "minimal.py" else 60
        assert len(path.read_text("utf-8").splitlines()) <= longest, path.name


def test_the_minimal_example_needs_only_torch_and_a_graph() -> None:
    text = (EXAMPLES / "minimal.py").read_text("utf-8")
    modules = re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)
    assert set(modules) == {"sys", "torch", "bvat"}
    assert set(re.findall(r"bvat\.(\w+)", text)) == {"load", "synthetic_graph", "to_scipy"}
