"""Compiled kernels where machine code cannot be kept, is damaged, or cannot be made at all: training works.

Every scenario is one ``bvat train`` in a process of its own, with its own folder for machine code.
"""

from __future__ import annotations

import json
import os
import pty
import resource
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file
from tally import Tally, times
from test_damage import damages

from bvat.data import save_graph, synthetic_graph
from bvat.engine.compile import has_numba

pytestmark = pytest.mark.skipif(not has_numba(), reason="numba does not compile here")

GROUP = "compiled code"
# one compiled function, the one that grows receptive fields: two seconds
OPTIONS = "--method sbvat --epochs 3 --hidden 8 --pretrain 0 --select last --device cpu --no-report --json"
SMALL = 25_000
"""Bytes: machine code of a kernel is larger, the files of a run are not."""
FIRST_RUNS = times(4, 2)


class Run:
    """A run of ``bvat train`` in the background."""

    def __init__(self, root: Path, name: str, *, limit: int = 0, terminal: bool = False, **env: str) -> None:
        self.out, self.shown = root / name, b""
        self._end, stderr = pty.openpty() if terminal else (None, subprocess.PIPE)
        command = [sys.executable, "-m", "bvat", "train", str(root / "graph.npz")]
        self._process = subprocess.Popen(
            [*command, *OPTIONS.split(), "--out", str(self.out)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "NUMBA_CACHE_DIR": str(root / "code"), "TERM": "xterm", **env},
            preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))) if limit else None,
        )
        if self._end is not None:
            os.close(stderr)
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()

    def _read(self) -> None:
        try:
            while piece := os.read(self._end or 0, 4096):
                self.shown += piece
        except OSError:  # the other side is closed
            pass

    def result(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Wait; return what was printed and the weights."""
        out, err = self._process.communicate()
        if self._end is not None:
            self._reader.join()
        said = (err or self.shown).decode()
        assert self._process.returncode == 0, said
        assert "Traceback" not in said
        return json.loads(out), {
            k: v.numpy() for k, v in load_file(self.out / "seed-0/weights.safetensors").items()
        }


def same(one: Any, other: Any) -> bool:
    """Return whether two results agree bit for bit, but for times and memory."""
    (first, weights), (second, others) = one, other
    return first["test_accuracy"] == second["test_accuracy"] and all(
        np.array_equal(weights[name], others[name]) for name in weights
    )


def close(one: Any, other: Any) -> bool:
    """Return whether weights agree but for rounding."""
    return all(np.allclose(one[1][name], other[1][name], rtol=1e-2, atol=1e-3) for name in one[1])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    graph = synthetic_graph(nodes=60, edges=150, features=20, classes=3, train_per_class=5, val=15, test=20)
    save_graph(graph, folder / "graph.npz")
    return folder


@pytest.fixture(scope="module")
def first(root: Path) -> list[tuple[Any, Run]]:
    """First runs at once, at terminals."""
    runs = [Run(root, f"first-{k}", terminal=True) for k in range(FIRST_RUNS)]
    return [(run.result(), run) for run in runs]


def kept_code(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (root / "code").rglob("*") if path.is_file()}


def test_first_runs_at_once(root: Path, first: list[tuple[Any, Run]], tally: list[Tally]) -> None:
    count = {4: "four", 2: "two"}[FIRST_RUNS]
    entry = Tally(GROUP, f"{count} first runs at once, empty cache", "all work, the same result")
    tally.append(entry)
    for result, _ in first:
        entry.count(same(result, first[0][0]))
    # under load the others may find what the first one has compiled
    assert any(b"compiling for the first run: " in run.shown for _, run in first)
    code = kept_code(root)
    assert code
    assert all(path.suffix == ".code" and len(content) > SMALL for path, content in code.items())
    second = Run(root, "second", terminal=True)
    entry = Tally(GROUP, "a later run", "compiles nothing, the same result")
    tally.append(entry)
    entry.count(same(second.result(), first[0][0]) and b"compiling" not in second.shown)
    assert kept_code(root) == code


def test_damaged_and_full_caches(root: Path, first: list[tuple[Any, Run]], tally: list[Tally]) -> None:
    code = kept_code(root)
    damage = [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:-9] + b"?" + data[-8:],
    ]
    for number, (path, content) in enumerate(code.items()):
        path.write_bytes(damage[number % 3](content))
    damaged = kept_code(root)
    tally.append(Tally(GROUP, "damaged cache on a full disk", "compiled without cache, the same result"))
    tally[-1].count(same(Run(root, "full", limit=SMALL).result(), first[0][0]))
    assert kept_code(root) == damaged  # nothing is left behind either
    tally.append(Tally(GROUP, "damaged cache", "compiled again, the same result"))
    tally[-1].count(same(Run(root, "damaged").result(), first[0][0]))
    assert kept_code(root).keys() == code.keys()
    assert all(len(content) > SMALL for content in kept_code(root).values())


@pytest.mark.parametrize(
    ("fault", "env", "agree"),
    [
        ("cache in a place that cannot be written", {"NUMBA_CACHE_DIR": "/proc/nowhere"}, same),
        ("NUMBA_DISABLE_JIT=1", {"NUMBA_DISABLE_JIT": "1"}, close),
        ("NUMBA_CPU_NAME=generic", {"NUMBA_CPU_NAME": "generic"}, close),
    ],
)
def test_other_environments(
    fault: str, env: dict[str, str], agree: Any, root: Path, first: list[tuple[Any, Run]], tally: list[Tally]
) -> None:
    expected = "the same result" if agree is same else "the same result but for rounding"
    tally.append(Tally(GROUP, fault, expected))
    tally[-1].count(agree(Run(root, fault.replace("/", " "), **env).result(), first[0][0]))


def test_damaged_machine_code_is_never_run(tmp_path: Path, tally: list[Tally]) -> None:
    """Damaged machine code could do anything: it is not even unpickled."""
    import numba

    from bvat.engine.compile import KeptCode

    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(tmp_path)
    try:
        function = numba.njit(_twice)
        function._cache = kept = KeptCode(_twice)
        assert function(21.0) == 42.0
    finally:
        numba.config.CACHE_DIR = before
    (path,) = (each for each in tmp_path.rglob("*") if each.is_file())
    (signature,) = function.signatures
    entry = Tally(GROUP, "damaged machine code", "not loaded")
    tally.append(entry)
    assert kept.load_overload(signature, function.targetctx) is not None
    for content in damages(path.read_bytes()):
        path.write_bytes(content)
        entry.count(kept.load_overload(signature, function.targetctx) is None)


def _twice(value: float) -> float:
    return value + value
