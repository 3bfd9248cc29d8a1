"""The files of ``bvat bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bvat.data.files import write_atomic, write_json
from bvat.errors import SettingsError
from bvat.report.bench_charts import bench_charts
from bvat.report.bench_tables import all_tables


def check_folder(folder: Path) -> None:
    """Raise SettingsError unless ``folder`` is a folder or can be created, before minutes are spent."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"--out {folder} cannot be a folder ({error.strerror}): use another path"
        ) from error


def write_bench_files(results: dict[str, Any], folder: Path) -> None:
    """Write ``bench.json``, one CSV file per table and one SVG file per chart."""
    write_json(folder / "bench.json", results)
    for table in all_tables(results):
        write_atomic(folder / f"{table.name}.csv", table.as_csv())
    for name, content in bench_charts(results).items():
        write_atomic(folder / f"{name}.svg", content)
