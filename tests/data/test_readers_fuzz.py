"""Whatever tables contain, the result is a Graph or a GraphError; tests/faults fuzzes the other formats."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reader_files import EDGES, NODES, write

from bvat import Graph
from bvat.data import load
from bvat.errors import GraphError

fuzz = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)

cell = st.sampled_from(
    ["", "n1", "n2", "n3", "train", "val", "test", "1", "-1", "0.5", "nan", "inf", "1e999", "1_0", " ", "x",
     "y", '"', '""', '"a,b"', '"a\nb"', "é", "\0", "\r", "\u2028"]
)  # fmt: skip
rows = st.lists(st.lists(cell, max_size=5).map(",".join), max_size=6).map("\n".join)
node_file = st.sampled_from(["id,label\n", "id,label,split\n", "id,label,a\n", "label,split,id,b\n", ""])
edge_file = st.sampled_from(["source,target\n", "source,target,weight\n", ""])


def graph_or_error(path: Path, **options: Any) -> None:
    """Reading gives a graph with one row per node, or a GraphError of one line."""
    graph: Graph | GraphError
    try:
        graph = load(path, **options)
    except GraphError as error:
        graph = error
    if isinstance(graph, GraphError):
        assert str(path) in str(graph)
        assert ": " in str(graph)
    else:
        assert graph.num_classes >= 2


@fuzz
@given(st.tuples(node_file, rows).map("".join), st.tuples(edge_file, rows).map("".join), st.booleans())
def test_rows(tmp_path: Path, nodes: str, edges: str, text: bool) -> None:
    graph_or_error(write(tmp_path / "mine", nodes, edges), text="a" if text else None)


@fuzz
@given(st.binary(max_size=60), st.sampled_from(["nodes", "edges"]), st.integers(0, 40), st.booleans())
def test_bytes_anywhere(tmp_path: Path, junk: bytes, file: str, place: int, packed: bool) -> None:
    files = {"nodes": NODES.encode(), "edges": EDGES.encode()}
    files[file] = files[file][:place] + junk + files[file][place:]
    if not packed:
        graph_or_error(write(tmp_path / "plain", **files))
    else:
        files = {f"{name}__csv__gz": gzip.compress(content) for name, content in files.items()}
        files[f"{file}__csv__gz"] = files[f"{file}__csv__gz"][:place] + junk
        graph_or_error(write(tmp_path / "packed", None, None, **files))
