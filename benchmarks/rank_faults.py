"""Ranks that are killed or stopped during training, see ranks.py."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from bvat.data.checksums import sha256

OPTIONS = ("--method", "vat", "--pretrain", "0", "--confidence", "0", "--beta", "1", "--no-report")


def start(
    parts: Path, ranks: int, run: Path, epochs: int, *more: str, restarts: int = 0
) -> subprocess.Popen[str]:
    """Start training over the ranks of this machine."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(ranks), "--max-restarts", str(restarts), "-m", "bvat", "train"]
    command += [str(parts), *OPTIONS, "--epochs", str(epochs), "--out", str(run), *more]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def children(pid: int) -> list[int]:
    """Return the processes that a process has started, in the order of their numbers (Linux)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:  # it has ended
            continue
        if int(text.rpartition(")")[2].split()[1]) == pid:
            found.append(int(stat.parent.name))
    return sorted(found)


def is_running(pid: int) -> bool:
    """Return whether a process has not ended (Linux)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def rank_processes(launcher: subprocess.Popen[str], ranks: int, patience: float = 120) -> list[int]:
    """Wait until all ranks have started; return their processes."""
    end = time.monotonic() + patience
    while time.monotonic() < end and launcher.poll() is None:
        if len(found := children(launcher.pid)) >= ranks:
            return found[-ranks:]
        time.sleep(0.05)
    return []


def outcome(run: Path) -> tuple[str, str]:
    """Return digests of the weights and of the metrics without times of a finished run."""
    seed = run / "seed-0"
    weights = sha256((seed / "weights.safetensors").read_bytes())
    lines = (seed / "metrics.csv").read_text("utf-8").splitlines()
    place = lines[0].split(",").index("ms")
    kept = [",".join(cell for i, cell in enumerate(line.split(",")) if i != place) for line in lines]
    return weights, sha256("\n".join(kept).encode())


def kill_ranks(
    parts: Path, folder: Path, *, ranks: int, times: int, epochs: int, seed: int = 0
) -> dict[str, Any]:
    """Kill a random rank at a random moment, let torchrun restart it, and compare with an undisturbed run."""
    chance = random.Random(seed)
    launcher = start(parts, ranks, folder / "undisturbed", epochs)
    rank_processes(launcher, ranks)
    began = time.monotonic()
    launcher.communicate(timeout=900)
    length, expected = time.monotonic() - began, outcome(folder / "undisturbed")
    rows: list[dict[str, Any]] = []
    for number in range(2 * times + 2):  # some finish before they are killed
        if sum(row["killed"] for row in rows) == times:
            break
        run = folder / f"killed-{number}"
        launcher = start(parts, ranks, run, epochs, restarts=3)
        processes, began = rank_processes(launcher, ranks), time.monotonic()
        wait, victim = chance.uniform(0, length), chance.randrange(ranks)
        time.sleep(wait)
        killed = launcher.poll() is None and bool(processes)
        if killed:
            try:
                os.kill(processes[victim], signal.SIGKILL)
            except ProcessLookupError:
                killed = False
        stage = "training" if (run / "seed-0").exists() else "start"
        launcher.communicate(timeout=900)
        if not killed:  # the run that was timed had to compile
            length = min(length, time.monotonic() - began)
        done = launcher.returncode == 0 and (run / "seed-0" / "result.json").is_file()
        same = done and outcome(run) == expected
        rows.append({"after": round(wait, 2), "rank": victim, "killed": killed, "stage": stage, "same": same})
    return {
        "ranks": ranks,
        "epochs": epochs,
        "kills": sum(row["killed"] for row in rows),
        "identical": sum(row["killed"] and row["same"] for row in rows),
        "runs": rows,
    }


def stop_rank(parts: Path, run: Path, *, ranks: int, epochs: int, timeout: float) -> dict[str, Any]:
    """Stop a rank with SIGSTOP; return how long the others take to end, and what they say.

    torchrun waits for the stopped rank for half a minute before it kills it, so this kills it once the others
    have ended.
    """
    launcher = start(parts, ranks, run, epochs, "--rank-timeout", str(timeout))
    processes = rank_processes(launcher, ranks)
    end = time.monotonic() + 120
    while not (run / "seed-0").exists() and time.monotonic() < end:
        time.sleep(0.1)
    os.kill(processes[-1], signal.SIGSTOP)
    began = time.monotonic()
    while any(map(is_running, processes[:-1])) and time.monotonic() < began + timeout + 120:
        time.sleep(0.05)
    seconds = time.monotonic() - began
    with suppress(ProcessLookupError):
        os.kill(processes[-1], signal.SIGKILL)
    said = launcher.communicate(timeout=120)[1]
    sentences = [line for line in said.splitlines() if line.startswith("bvat: ")]
    return {
        "timeout": timeout,
        "seconds": round(seconds, 1),
        "returncode": launcher.returncode,
        "said": sentences,
        "left": [pid for pid in processes if Path(f"/proc/{pid}/stat").exists()],
    }
