"""2,000 command lines with nonsense in every option: each ends with a result, or with one sentence."""

from __future__ import annotations

import inspect
import os
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tally import Tally, times

from bvat.cli import audit, compare, predict, reproduce, tune
from bvat.cli.main import main
from bvat.data import save_graph, synthetic_graph
from bvat.training.settings import all_fields

VALUES = ("-1", "0", "nan", "inf", "-inf", "1e308", "1e-308", "", "text", "99999999999999999999", "0x10",
          "1_0", "٣", "²", " 2", "2.5", "[/b]", "\x1b[31m", "a" * 300, "9" * 5000)  # fmt: skip
LINES = 2_000


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder, in memory where there is such a place, with a tiny graph and a run on it."""
    ram = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=ram if os.access(ram, os.W_OK) else None) as name:
        folder = Path(name)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        monkeypatch.setenv("NO_COLOR", "1")
        graph = synthetic_graph(
            nodes=40, edges=80, features=20, classes=2, train_per_class=4, val=10, test=15
        )
        save_graph(graph, folder / "g.npz")
        yield folder


def run(line: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int | str, str]:
    """Run a command line in this process; return its exit code, or the traceback, and what it printed."""
    code: Any = 0
    try:
        main(line)
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        code = traceback.format_exc(limit=-6)
    shown = capfd.readouterr()
    return code, shown.err


def commands() -> list[tuple[list[str], list[str]]]:
    """Return the beginnings of command lines, and the options to put nonsense into."""

    def of(command: Any) -> list[str]:
        given = [p for p in inspect.signature(command).parameters.values() if p.annotation != "bool"]
        return [f"--{p.name.replace('_', '-')}" for p in given if p.default is not inspect.Parameter.empty]

    train = ["train", "g.npz", "--epochs", "2", "--jobs", "1", "--no-report", "--hidden", "4", "--resume"]
    settings = [
        f"--{f.name.replace('_', '-')}" for f in all_fields().values() if not isinstance(f.default, bool)
    ]
    own = ["--seeds", "--seed", "--jobs", "--threads", "--device", "--text", "--train-per-class",
           "--val", "--split-seed", "--out"]  # fmt: skip
    lines = [
        ([*train, "--method", name], [*settings, *own]) for name in ("none", "sbvat", "obvat", "vat", "flag")
    ]
    lines.append(([*train, "--method", "obvat", "--model", "gat"], settings))
    searching = ["tune", "g.npz", "--method", "random", "--trials", "1", "--seeds", "1", "--finalists", "1",
                 "--check-seeds", "1", "--epochs", "2", "--jobs", "1"]  # fmt: skip
    lines.append((searching, of(tune.tune)))
    comparing = ["compare", "g.npz", "--methods", "gcn", "--labels", "2", "--splits", "1", "--val", "8",
                 "--epochs", "4", "--jobs", "1"]  # fmt: skip
    lines.append((comparing, of(compare.compare)))
    repeating = ["reproduce", "table2", "--datasets", "g.npz", "--methods", "gcn", "--seeds", "1",
                 "--epochs", "2", "--jobs", "1"]  # fmt: skip
    lines.append((repeating, [option for option in of(reproduce.reproduce) if option != "--datasets"]))
    lines.append((["predict", "run", "--out", "p.csv"], of(predict.predict)))
    lines.append((["audit", "run", "--out", "a.csv", "--nodes", "2"], of(audit.audit)))
    return lines


def command_lines() -> Iterator[list[str]]:
    """Yield every option with every value once, then random pairs of them, until there are enough."""
    rng, every = Random(0), []
    for start, options in commands():
        every += [[*start, option, value] for option in dict.fromkeys(options) for value in VALUES]
    every += [
        [command, value]
        for command in ("train", "predict", "bench", "data", "data check")
        for value in VALUES
    ]
    first = [line for line in every if line[0] != "train"]
    rest = [line for line in every if line[0] == "train"]
    rng.shuffle(rest)
    lines = [*first, *rest[: LINES - len(first)]]
    rng.shuffle(lines)
    yield from lines[: times(len(lines))]


def test_command_lines(tally: list[Tally], place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    entry = Tally(
        "Fuzzing", "command lines with nonsense in every option", "a result, or one sentence and exit 2"
    )
    tally.append(entry)
    code, said = run(
        ["train", "g.npz", "--method", "none", "--epochs", "2", "--no-report", "--out", "run"], capfd
    )
    assert code == 0, said
    bad = []
    for number, line in enumerate(command_lines()):
        parts = line if "--out" in line or line[0] != "train" else [*line, "--out", f"runs/{number}"]
        code, said = run(parts, capfd)
        problems = [text for text in said.splitlines() if text.startswith("bvat: ")]
        fine = (code == 0 or (code == 2 and len(problems) == 1)) and "\x1b" not in said
        entry.count(fine, traceback=isinstance(code, str))
        if not fine:
            bad.append(f"{line!r:.500}: {code}\n{said[-500:]}")
    assert not bad, f"{len(bad)} of {entry.tried}:\n" + "\n".join(bad[:30])
    assert entry.tried >= times(LINES)
