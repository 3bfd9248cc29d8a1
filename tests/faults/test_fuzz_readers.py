"""100,000 hostile inputs over all readers: each gives a graph, or one of our errors in one line.

A graph that is accepted must also be one that can be trained.
"""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import corpus
import numpy as np
import pytest
from data_files import NELL, nell_files, planetoid_files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tally import Tally, times

from bvat.data import readers
from bvat.data.download import RawFile, Unreachable, archive_members
from bvat.data.planetoid import read_cora, read_nell, read_planetoid
from bvat.data.readers.csv_table import CsvTable
from bvat.data.readers.folder import open_table
from bvat.data.readers.matrices import read_features
from bvat.data.store import graph_from_bytes
from bvat.data.unpickle import unpickle
from bvat.errors import BvatError
from bvat.graph import Graph
from bvat.training.loop import train
from bvat.training.settings import Settings

EXPECTED = "a graph, or one sentence"


@pytest.fixture
def ram() -> Iterator[Path]:
    """A folder in memory where there is one: 40,000 small files are slow on a disk."""
    place = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=place if os.access(place, os.W_OK) else None) as folder:
        yield Path(folder)


class Attempts:
    """Counts what happens to hostile inputs; the first few failures are kept for the message of the test."""

    def __init__(self, tally: list[Tally], reader: str) -> None:
        self.entry = Tally("Fuzzing", f"inputs of {reader}", EXPECTED)
        self.failures: list[str] = []
        self.graphs: list[Graph] = []
        tally.append(self.entry)

    def __call__(self, content: Any, read: Callable[[], Any], named: object = "") -> Any:
        """Read, and count whether it gave a result or one of our errors, which mentions what is ``named``."""
        try:
            result = read()
        except (BvatError, Unreachable) as error:
            self.entry.count("\n" not in str(error) and bool(str(error)) and str(named) in str(error))
            return None
        except BaseException:
            self.entry.count(False, traceback=True)
            if len(self.failures) < 3:
                self.failures.append(f"{content!r:.2000}\n{traceback.format_exc(limit=-4)}")
            return None
        self.entry.count(True)
        return result

    def finish(self) -> None:
        """Fail with the inputs that broke the reader."""
        assert not self.failures, f"{self.entry.tracebacks} failures:\n" + "\n".join(self.failures)


def trained(graph: Graph) -> str:
    """Train a graph for two epochs and return how that ended; anything but one of our errors is raised."""
    try:
        for method in ("none", "obvat"):
            train(graph, Settings(method=method, epochs=2, hidden=4), 0)
    except BvatError:
        return "refused"
    return "trained"


def test_pickles(tally: list[Tally]) -> None:
    rng, attempt = Random(1), Attempts(tally, "pickles")
    for content in corpus.kept_pickles():
        attempt(content, lambda content=content: unpickle(content, "x"))
    assert not Path("hacked").exists()
    for _ in range(times(45_000)):
        content = corpus.mutated(rng, rng.choice(corpus.pickles()))
        attempt(content, lambda content=content: unpickle(content, "x"))
    attempt.finish()


def test_raw_files_of_data_sets(tally: list[Tally]) -> None:
    rng, attempt = Random(2), Attempts(tally, "raw files of data sets")
    tiny, nell = planetoid_files(), nell_files()
    papers = "\n".join(f"p{k}\t{k % 2}\t1\t{'ab'[k % 2]}" for k in range(8)).encode()
    cites = "\n".join(f"p{k}\tp{(k + 1) % 8}" for k in range(8)).encode()
    order = tuple(f"p{k}" for k in range(8))
    for _ in range(times(2_500)):
        for files, prefix, read in ((tiny, "ind.tiny.", read_planetoid), (nell, NELL, read_nell)):
            name = rng.choice(sorted(files))
            changed = {**files, name: corpus.mutated(rng, files[name])}
            attempt(
                changed[name],
                lambda changed=changed, prefix=prefix, read=read: read(changed, prefix, name="x"),
            )
        pair = [papers, cites]
        which = rng.randrange(2)
        pair[which] = corpus.mutated(rng, pair[which])
        attempt(
            pair, lambda pair=pair: read_cora(*pair, class_names=("a", "b"), order=order, train=2, test=2)
        )
    attempt.finish()


def test_stored_graphs(tally: list[Tally]) -> None:
    rng, attempt = Random(3), Attempts(tally, "stored graphs (.npz)")
    accepted = []
    for content in corpus.kept_stored():
        graph = attempt(content, lambda content=content: graph_from_bytes(content, "x"))
        accepted += [graph] if graph is not None else []
    for k in range(times(6_000)):
        make = corpus.odd_stored if k % 3 else corpus.odd_zip
        content = make(rng)
        graph = attempt(content, lambda content=content: graph_from_bytes(content, "x"))
        accepted += [graph] if graph is not None and k % 3 else []
    attempt.finish()
    training = Attempts(tally, "graphs that were accepted, trained")
    for graph in accepted[:: max(1, len(accepted) // 250)]:
        training(graph, lambda graph=graph: trained(graph))
    training.finish()


def test_archives(tally: list[Tally]) -> None:
    rng, attempt = Random(4), Attempts(tally, "tar files")
    wanted = [RawFile(name, len(data), sha256(data).hexdigest()) for name, data in nell_files().items()]
    for _ in range(times(3_000)):
        content = corpus.gzipped(rng, corpus.mutated(rng, rng.choice(corpus.archives())))
        attempt(content, lambda content=content: archive_members("url", content, wanted))
    attempt.finish()


def test_tables(tally: list[Tally], ram: Path) -> None:
    rng, attempt = Random(5), Attempts(tally, "CSV tables")
    plain, packed = ram / "nodes.csv", ram / "nodes.csv.gz"
    texts = [text.encode() for pair in corpus.TABLES.values() for text in pair]
    for k in range(times(22_000)):
        content = corpus.mutated(rng, rng.choice(texts))
        path = plain if k % 8 else packed
        path.write_bytes(content if k % 8 else corpus.gzipped(rng, content))

        def read(path: Path = path) -> None:
            table = open_table(path)
            assert isinstance(table, CsvTable)
            for _ in table.blocks(table.names[:2], table.names[2:]):
                pass

        attempt(content, read)
    attempt.finish()


def test_folders(tally: list[Tally], ram: Path) -> None:
    rng, attempt = Random(6), Attempts(tally, "folders with tables")
    for k in range(times(4_000)):
        nodes, edges = (text.encode() for text in corpus.TABLES[rng.choice(sorted(corpus.TABLES))])
        if k % 2:
            nodes = corpus.mutated(rng, nodes)
        else:
            edges = corpus.mutated(rng, edges)
        (ram / "nodes.csv").write_bytes(nodes)
        (ram / "edges.csv").write_bytes(edges)
        if k % 8 == 1:
            (ram / "edges.csv").unlink()
        options = readers.ReadOptions(rng.choice([None, None, "text"]))
        attempt((nodes, edges), lambda options=options: readers.read(ram, options), ram.name)
    attempt.finish()


def test_parquet(tally: list[Tally], ram: Path) -> None:
    rng, attempt = Random(7), Attempts(tally, "Parquet tables")
    (ram / "edges.csv").write_text(corpus.EDGES)
    for _ in range(times(3_000)):
        content = corpus.mutated(rng, rng.choice(corpus.parquet_files()))
        (ram / "nodes.parquet").write_bytes(content)
        attempt(content, lambda: readers.read(ram), ram.name)
    attempt.finish()


def test_feature_matrices(tally: list[Tally], ram: Path) -> None:
    rng, attempt = Random(8), Attempts(tally, "feature matrices (.npz)")
    path = ram / "features.npz"
    for _ in range(times(4_000)):
        content = corpus.odd_arrays(rng, corpus.feature_arrays())
        path.write_bytes(content)
        attempt(content, lambda: read_features(path, 5), path)
    attempt.finish()


def test_dense_matrices(tally: list[Tally], ram: Path) -> None:
    rng, attempt = Random(10), Attempts(tally, "feature matrices (.npy)")
    path = ram / "features.npy"
    kinds = [np.eye(5, 3).astype(kind) for kind in ("f8", ">f4", "f2", "i1", "?", "c8", "S3")]
    for _ in range(times(4_000)):
        np.save(path, rng.choice(kinds))
        content = corpus.mutated(rng, path.read_bytes())
        path.write_bytes(content)
        rows = rng.choice([5, None])
        attempt(content, lambda rows=rows: read_features(path, rows), path)
    attempt.finish()


def test_benchmark_files(tally: list[Tally], ram: Path) -> None:
    rng, attempt = Random(9), Attempts(tally, "benchmark files (.npz)")
    path = ram / "mine.npz"
    accepted = []
    for k in range(times(6_000)):
        content = corpus.odd_arrays(rng, corpus.benchmark_arrays())
        path.write_bytes(corpus.mutated(rng, content) if k % 5 == 0 else content)
        graph = attempt(content, lambda: readers.read(path), path)
        accepted += [graph] if graph is not None else []
    attempt.finish()
    training = Attempts(tally, "benchmark graphs that were accepted, trained")
    for graph in accepted[:: max(1, len(accepted) // 200)]:
        training(graph, lambda graph=graph: trained(graph))
    training.finish()


cell = st.one_of(
    st.sampled_from(["", "n1", "n2", "x", "train", "1", "-1", "nan", '"', '"a,b"']), st.text(max_size=4)
)
table = st.lists(st.lists(cell, max_size=5).map(",".join), max_size=6).map("\n".join)


def test_hypothesis(tally: list[Tally], ram: Path) -> None:
    attempt = Attempts(tally, "files that hypothesis writes")

    @settings(
        max_examples=times(1_500, 300), deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.sampled_from(["id,label\n", "id,label,split,a\n", ""]), table, table, st.binary(max_size=40))
    def explore(header: str, nodes: str, edges: str, junk: bytes) -> None:
        (ram / "nodes.csv").write_bytes((header + nodes).encode("utf-8", "surrogatepass"))
        (ram / "edges.csv").write_bytes(("source,target\n" + edges).encode("utf-8", "surrogatepass"))
        attempt((nodes, edges), lambda: readers.read(ram), ram.name)
        attempt(junk, lambda: unpickle(junk, "x"))
        attempt(junk, lambda: graph_from_bytes(junk, "x"))

    explore()
    attempt.finish()
