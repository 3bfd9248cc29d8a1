from __future__ import annotations

import sys

from bvat.data import load
from stream import generate, measured


def test_the_generated_graph_can_be_read(tmp_path) -> None:
    generate(tmp_path / "graph", 20_000)
    graph = load(tmp_path / "graph")
    assert graph.num_nodes == 2000
    assert graph.num_features == 8
    assert 15_000 < graph.num_edges <= 20_000


def test_memory_and_disk_are_those_of_the_command(tmp_path) -> None:
    made = "import time; a = b'x' * 2**26; open('file', 'wb').write(a); time.sleep(0.6)"
    found = measured([sys.executable, "-c", made], tmp_path)
    assert 64 <= found["peak_mib_without_mapped_files"] <= found["peak_mib"]
    assert found["disk_mib"] == found["parts_mib"] == 64
    assert found["seconds"] >= 0.6
