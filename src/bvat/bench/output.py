"""Writing the results of a benchmark into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bvat.bench.figures import MISSING, all_figures
from bvat.bench.tables import all_tables
from bvat.data.files import write_atomic, write_json
from bvat.errors import SettingsError


def check_folder(folder: Path) -> None:
    """Raise SettingsError unless ``folder`` is a folder or can become one, before minutes are spent."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"--out {folder} cannot be a folder ({error.strerror}): name another") from error


def write_results(results: dict[str, Any], folder: Path) -> list[str]:
    """Write ``bench.json``, a CSV file a table and the plots; return what has to be said about it."""
    write_json(folder / "bench.json", results)
    for table in all_tables(results):
        write_atomic(folder / f"{table.name}.csv", table.as_csv())
    figures = all_figures(results)
    if figures is None:
        return [MISSING]
    for name, content in figures.items():
        write_atomic(folder / name, content)
    return []
