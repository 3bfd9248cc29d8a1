"""Faults, damage and hostile input: every test here is slow, and counts what it tried and what survived.

``pytest tests/faults --tally results/faults.json`` also writes the counts, from which
``python docs/faults.py`` makes the table of the documentation. Without ``--tally`` what is tried often is
tried a tenth as often, so that it fits into CI.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from commands import Forker, forker
from tally import Tally, remember

from bvat import __version__
from bvat.data import save_graph, synthetic_graph

HERE = Path(__file__).parent


_TALLIES: list[Tally] = []


def pytest_configure(config: pytest.Config) -> None:
    """Decide how often things are tried, before the tests are read."""
    remember(config)


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[list[Tally]]:
    """A list that keeps every ``Tally`` a test appends; all of them are checked when the test ends."""
    kept: list[Tally] = []
    yield kept
    _TALLIES.extend(kept)
    for entry in kept:
        entry.check()


@pytest.fixture(scope="session")
def start() -> Iterator[Forker]:
    """What starts commands."""
    with forker() as made:
        yield made


@pytest.fixture(scope="session")
def small_graph(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file of a small graph."""
    path = tmp_path_factory.mktemp("graphs") / "small.npz"
    save_graph(synthetic_graph(nodes=120, edges=300, features=40, classes=3, train_per_class=5, val=30), path)
    return str(path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder as slow, and begin with them: several processes then end together."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: not item.path.is_relative_to(HERE))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker of ``pytest -n`` has counted."""
    _TALLIES.extend(Tally(**entry) for entry in getattr(node, "workeroutput", {}).get("tallies", []))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the counts; those of groups that did not run this time are kept."""
    target, counted = session.config.getoption("--tally", None), [asdict(entry) for entry in _TALLIES]
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["tallies"] = counted
        return
    if not target or not counted:
        return
    path = Path(target)
    before = json.loads(path.read_text("utf-8"))["tallies"] if path.exists() else []
    now = {(entry["group"], entry["fault"]): {**entry, "version": __version__} for entry in counted}
    kept = [entry for entry in before if (entry["group"], entry["fault"]) not in now]
    rows = sorted([*kept, *now.values()], key=lambda entry: (entry["group"], entry["fault"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(
        {"command": f"pytest -n 2 --dist loadfile tests/faults --tally {target}", "tallies": rows}, indent=2
    )
    path.write_text(text + "\n", "utf-8")
