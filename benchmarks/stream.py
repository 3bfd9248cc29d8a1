"""Memory and time of cutting a graph with and without --stream.

python benchmarks/stream.py --edges 1e8 --out results/distributed/stream.json

A generated graph of communities of a thousand consecutive nodes, ten edges per node and eight features is
written as Parquet and cut by ``bvat partition`` in a process of its own. Results are added to the file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

COMMUNITY, FEATURES, CLASSES, ROWS = 1000, 8, 8, 2**20


def generate(folder: Path, edges: int) -> None:
    """Write a folder of Parquet files, a group of rows at a time."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    rng, nodes = np.random.default_rng(0), edges // 10
    classes = np.array([f"class {k}" for k in range(CLASSES)])
    folder.mkdir()

    def write(name: str, rows: int, made: Any) -> None:
        writer = None
        for start in range(0, rows, ROWS):
            table = pa.table(made(np.arange(start, min(start + ROWS, rows))))
            writer = writer or parquet.ParquetWriter(folder / name, table.schema)
            writer.write_table(table)
        writer.close()

    def some_nodes(ids: Any) -> dict[str, Any]:
        label = ids // COMMUNITY % CLASSES
        x = rng.normal(size=(ids.size, FEATURES)).astype(np.float32)
        x[np.arange(ids.size), label] += 1
        split = np.array(["train", "val", "test"])[rng.choice(3, ids.size, p=[0.1, 0.1, 0.8])]
        columns = {"id": ids, "label": classes[label], "split": split}
        return columns | {f"x{k}": x[:, k] for k in range(FEATURES)}

    def some_edges(rows: Any) -> dict[str, Any]:
        source = rng.integers(0, nodes, rows.size)
        near = source // COMMUNITY * COMMUNITY + rng.integers(0, COMMUNITY, rows.size)
        far = rng.integers(0, nodes, rows.size)
        target = np.where(rng.random(rows.size) < 0.1, far, np.minimum(near, nodes - 1))
        return {"source": source, "target": target}

    write("nodes.parquet", nodes, some_nodes)
    write("edges.parquet", edges, some_edges)


def measured(command: list[str], folder: Path) -> dict[str, Any]:
    """Run a command; return its seconds, its memory, and the disk space that it took beside its result."""
    before, start, private, disk = _size(folder), time.perf_counter(), 0, 0
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        private = max(private, _private(process.pid))
        disk = max(disk, _size(folder) - before)
        time.sleep(0.25)
    process.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return {
        "seconds": round(time.perf_counter() - start, 1),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_mib": usage.ru_maxrss // 1024,
        "peak_mib_without_mapped_files": private // 1024,
        "disk_mib": disk >> 20,
        "parts_mib": (_size(folder) - before) >> 20,
    }


def _private(pid: int) -> int:
    """Return the KiB of memory that are not pages of files."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"RssAnon:\s+(\d+)", status)
    return int(found[1]) if found else 0


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # removed meanwhile
            continue
    return total


def main() -> None:
    """Generate a graph, cut it, and add what was measured to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=float, default=1e6)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--by", default="order")
    parser.add_argument("--in-memory", action="store_true", help="without --stream")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--generate", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.generate:
        generate(arguments.generate, int(arguments.edges))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # in a process of its own: a process starts with the peak of the one that starts it
        one = [sys.executable, __file__, "--edges", str(arguments.edges), "--generate", str(folder / "graph")]
        subprocess.run(one, check=True)
        command = ["partition", "graph", "--parts", str(arguments.parts), "--by", arguments.by]
        command += ["--out", "parts", "--json"] + ["--stream"] * (not arguments.in_memory)
        input_mib = _size(folder) >> 20
        found = measured([sys.executable, "-m", "bvat", *command], folder)
    from bvat._version import __version__
    from bvat.bench.measure import machine

    row = {"command": " ".join(["bvat", *command]), "nodes": int(arguments.edges) // 10}
    row |= {"edges": int(arguments.edges), "input_mib": input_mib, **found, "version": __version__}
    sys.stdout.write(json.dumps(row) + "\n")
    if arguments.out:
        from bvat.data.files import write_json

        known = json.loads(arguments.out.read_text())["rows"] if arguments.out.exists() else []
        same = ("command", "edges")
        rows = [other for other in known if any(other[key] != row[key] for key in same)] + [row]
        write_json(arguments.out, {"rows": rows, "machine": machine()})


if __name__ == "__main__":
    main()
