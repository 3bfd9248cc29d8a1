"""Machine code on disk: damage, full disks and missing folders cost time, never an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bvat.engine import compile as compiling
from bvat.engine.compile import Compiled, compile_and_keep, has_numba, when_compiling

pytestmark = pytest.mark.skipif(not has_numba(), reason="numba does not compile here")


def twice(values: Any) -> Any:
    return values + values


def call() -> tuple[list[str], float]:
    """Call a function as a new process does; return what was compiled, and the result."""
    told: list[str] = []
    with when_compiling(told.append):
        result = float(compile_and_keep(twice)(21.0))
    return told, result


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the machine code."""
    numba = pytest.importorskip("numba")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    assert call() == (["twice", ""], 42.0)
    (path,) = (each for each in tmp_path.rglob("*") if each.is_file())
    return path


def test_what_is_kept_is_not_compiled_again(kept: Path) -> None:
    assert call() == ([], 42.0)


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "folder"])
def test_a_damaged_file_is_compiled_again(kept: Path, damage: str) -> None:
    good = kept.read_bytes()
    if damage == "folder":
        kept.unlink()
        kept.mkdir()
    else:
        bad = {"empty": b"", "cut": good[: len(good) // 2], "flipped": bytes([good[0] ^ 1]) + good[1:]}
        kept.write_bytes(bad[damage])
    assert call() == (["twice", ""], 42.0)
    if damage != "folder":
        assert call() == ([], 42.0)
    assert [each.name for each in kept.parent.iterdir()] == [kept.name]


def test_a_changed_source_is_compiled_again(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "source_stamp", lambda _: "another")
    assert call() == (["twice", ""], 42.0)
    assert call() == ([], 42.0)


def test_a_full_disk_costs_time_only(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.unlink()

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert call() == (["twice", ""], 42.0)
    assert list(kept.parent.iterdir()) == []


def test_no_folder_to_keep_code_in(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.core import caching

    def none(_: Any) -> None:
        raise RuntimeError("no locator available")

    monkeypatch.setattr(caching, "FunctionCache", none)
    assert call() == (["twice", ""], 42.0)


def test_without_jit_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    numba = pytest.importorskip("numba")
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    compiling.has_numba.cache_clear()
    try:
        assert not has_numba()
        assert Compiled(twice)(np.ones(2)).tolist() == [2, 2]
        assert compiling.compiled(twice) is twice  # what ranks draw with
    finally:
        monkeypatch.undo()
        compiling.has_numba.cache_clear()


def test_parts_do_not_take_over_the_flags_of_their_first_caller() -> None:
    """Otherwise machine code would depend on the order in which kernels are compiled in a process."""
    from bvat.engine import loops

    found = {
        name: each.targetoptions.get("fastmath")
        for name, each in vars(loops).items()
        if hasattr(each, "targetoptions")
    }
    assert len(found) > 7
    assert None not in found.values()
    assert found["_add"] == {"contract"}
