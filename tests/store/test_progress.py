"""The progress display counts tasks and shows what it is told."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from bvat.engine.compile import tell
from bvat.store.progress import ProgressDisplay


def test_tasks_are_counted_and_shown() -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=120)
    labels = {"a": "seed a", "b": "seed b"}
    with ProgressDisplay("two seeds", {"a": 10, "b": 30}, console, labels=labels, unit="epochs") as display:
        display.update("a", 10)
        assert display.finished == 1
        display.update("b", 5)
        display.set_title("seed b of two")
        display._rich.refresh()
        assert display.finished == 1
        display.update("b", 45)  # a task may report more than its size
        assert display.finished == 2
    shown = text.getvalue()
    assert "seed b of two" in shown
    assert "15/40" in shown
    assert "epochs" in shown


def test_without_a_console_nothing_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with ProgressDisplay("nothing to do", dict[int, float]()) as display:
        assert display.finished == 0
    assert capfd.readouterr() == ("", "")


def test_the_first_run_says_that_it_compiles() -> None:
    text = io.StringIO()
    with ProgressDisplay("seeds", {"a": 10}, Console(file=text, force_terminal=True, width=120)) as display:
        for name, shown in [("outer", "compiling for the first run: outer"), ("", "seeds")]:
            tell(name)
            assert display._rich.tasks[-1].description == shown
        display._rich.refresh()
    tell("nobody listens now")
    assert display._rich.tasks[-1].description == "seeds"


def test_a_file_gets_lines_instead_of_a_bar() -> None:
    text = io.StringIO()
    with ProgressDisplay("audit", {0: 3000}, Console(file=text), unit="nodes", line_every=60) as display:
        display.update(0, 700)
        assert not text.getvalue().strip()  # the first line comes after a minute
    text = io.StringIO()
    with ProgressDisplay("audit", {0: 3000}, Console(file=text), unit="nodes", line_every=0) as display:
        display.update(0, 1500)
    with ProgressDisplay("seeds", {0: 3000}, Console(file=text), line_every=0) as other:
        other.update(0, 1500)
    assert text.getvalue().split("\n")[:1] == ["audit: 1,500 of 3,000 nodes"]
    assert "seeds: 50%" in text.getvalue()
