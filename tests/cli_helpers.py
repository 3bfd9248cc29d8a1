"""The command line, called in the process of the test."""

from __future__ import annotations

import pytest

from bvat.cli.main import main


def bvat(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run a command; return its exit code and what it wrote to standard output and standard error."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err
