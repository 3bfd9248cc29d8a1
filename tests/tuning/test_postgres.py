"""Several workers on one PostgreSQL server, which the test starts on a loopback port."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from bvat.data import save_graph, synthetic_graph

optuna = pytest.importorskip("optuna")
pytest.importorskip("psycopg")


def find(program: str) -> str | None:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(program, path=os.pathsep.join([*map(str, folders), os.environ.get("PATH", "")]))


def as_server(*command: str) -> list[str]:
    """Return a command for the user of the server, which must not be root."""
    return ["runuser", "-u", "postgres", "--", *command] if os.geteuid() == 0 else list(command)


class Server(NamedTuple):
    url: str
    stop: Callable[[], object]


@pytest.fixture
def server() -> Iterator[Server]:
    initdb, ctl = find("initdb"), find("pg_ctl")
    if initdb is None or ctl is None:
        pytest.skip("no PostgreSQL server is installed")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        data = str(folder / "data")
        made = subprocess.run(
            as_server(initdb, "-D", data, "-U", "bvat", "-A", "trust", "--no-sync"), capture_output=True
        )
        if made.returncode:
            pytest.skip(f"PostgreSQL cannot be set up here: {made.stderr.decode()[-200:]}")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = f"-p {port} -h 127.0.0.1 -k {name} -F"
        control = as_server(ctl, "-D", data, "-l", str(folder / "log"), "-w")
        subprocess.run([*control, "-o", options, "start"], check=True, stdout=subprocess.DEVNULL, timeout=120)
        stop = partial(
            subprocess.run,
            [*control, "-m", "immediate", "stop"],
            capture_output=True,
            timeout=60,
            check=False,
        )
        try:
            yield Server(f"postgresql+psycopg://bvat:not-for-you@127.0.0.1:{port}/postgres", stop)
        finally:
            stop()


@pytest.mark.slow
def test_a_server_that_is_stopped_is_one_sentence(server: Server, tmp_path: Path) -> None:
    graph = tmp_path / "graph.npz"
    save_graph(synthetic_graph(nodes=60, edges=150, features=30, train_per_class=4), graph)
    command = [sys.executable, "-m", "bvat", "tune", str(graph), "--method", "vat", "--trials", "50"]
    command += ["--jobs", "2", "--storage", server.url, "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list((tmp_path / "out").rglob("seed-*")):
        time.sleep(0.05)
    server.stop()
    said = process.communicate(timeout=300)[1].strip()
    assert process.returncode == 2
    assert said.startswith("bvat: the storage 'postgresql+psycopg://bvat:***@127.0.0.1:")
    assert "run the same command again" in said
    assert "\n" not in said
    assert "not-for-you" not in said


@pytest.mark.slow
def test_no_trial_is_lost_or_done_twice_when_a_worker_is_killed(server: Server, tmp_path: Path) -> None:
    from optuna.trial import TrialState

    graph = tmp_path / "graph.npz"
    save_graph(synthetic_graph(nodes=60, edges=150, features=30, train_per_class=4), graph)
    trials = 8

    def worker(number: int) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "bvat",
            "tune",
            str(graph),
            "--method",
            "vat",
            "--trials",
            str(trials),
        ]
        command += ["--seeds", "1", "--finalists", "1", "--check-seeds", "1", "--epochs", "60", "--jobs", "1"]
        command += ["--storage", server.url, "--out", str(tmp_path / f"machine-{number}")]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    first, second = worker(1), worker(2)
    storage = optuna.storages.RDBStorage(server.url)
    running: list[object] = []
    for _ in range(1200):
        names = optuna.study.get_all_study_names(storage)
        study = optuna.load_study(study_name=names[0], storage=storage) if names else None
        running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)) if study else []
        if any(trial.user_attrs.get("worker", [0, 0])[1] == second.pid for trial in running):  # type: ignore[attr-defined]
            break
        time.sleep(0.05)
    second.send_signal(signal.SIGKILL)
    second.communicate()
    again = worker(3)
    for process in (first, again):
        said = process.communicate(timeout=300)[1]
        assert process.returncode == 0, said.decode()
    assert study is not None
    found = study.get_trials(deepcopy=False)
    assert {trial.state for trial in found} <= {TrialState.COMPLETE, TrialState.PRUNED}
    assert trials <= len(found) <= trials + 1  # two workers may each begin a last one
    assert [trial.number for trial in found] == list(range(len(found)))
    settings = [tuple(sorted(trial.user_attrs["settings"].items())) for trial in found]
    assert len(set(settings)) == len(settings)
    storage.remove_session()
    storage.engine.dispose()
