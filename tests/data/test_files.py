"""Tables as CSV."""

from __future__ import annotations

import math
from pathlib import Path

from bvat.data.files import csv_text, write_csv


def test_missing_cells_are_empty_and_text_is_quoted(tmp_path: Path) -> None:
    rows = [(1, None, math.nan), (0.5, 'a "b", c', math.inf)]
    text = csv_text(("x", "y", "z"), rows)
    assert text == 'x,y,z\n1,,\n0.5,"a ""b"", c",inf\n'
    write_csv(tmp_path / "new" / "table.csv", ("x", "y", "z"), rows)
    assert (tmp_path / "new" / "table.csv").read_text("utf-8") == text
