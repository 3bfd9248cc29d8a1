"""Several processes that work on the same runs."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bvat.store.claim import taken

SCRIPT = """
import os, sys
from pathlib import Path
from bvat.data import synthetic_graph
from bvat.training.settings import preset
from bvat.store.store import Measurement, RunSpec, RunStore

folder = Path(sys.argv[1])

def note(graph, settings, trained):
    with (folder / "log").open("a") as file:
        file.write(f"{os.getpid()} {trained.seed}\\n")
    return {}

graph = synthetic_graph(nodes=60, edges=150, features=20, classes=3, train_per_class=5, val=15, test=20)
noted = Measurement("noted", note, dict)
specs = [RunSpec("small", preset("none", "vat", epochs=60, hidden=8), seed, noted) for seed in range(8)]
store = RunStore.open(folder / "store", {"small": graph})
(folder / f"ready-{os.getpid()}").touch()
while len(list(folder.glob("ready-*"))) < 2:
    pass
store.run_all(specs, 1)
assert len(store.results(specs)) == 8
"""


@pytest.mark.slow
def test_two_processes_share_the_runs_of_a_store(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in processes:
        said = process.communicate(timeout=300)[1]
        assert process.returncode == 0, said
    done = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert sorted(int(seed) for _, seed in done) == list(range(8))  # none is trained twice
    assert len({process for process, _ in done}) == 2
    assert not list(tmp_path.rglob("*.lock"))


def test_what_another_process_holds_is_left_or_waited_for(tmp_path: Path) -> None:
    path, order = tmp_path / "runs" / ".seed-0.lock", []
    with taken(path, wait=False) as mine:
        assert mine
        with taken(path, wait=False) as again:
            assert not again

        def wait() -> None:
            with taken(path, wait=True) as later:
                order.append("later" if later else "never")

        thread = threading.Thread(target=wait)
        thread.start()
        order.append("first")
    thread.join(timeout=30)
    assert order == ["first", "later"]
    assert not path.exists()
