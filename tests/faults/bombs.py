"""Small files that claim or unpack to far more than they hold, one function each.

``python bombs.py FOLDER`` writes every bomb to a folder of its own, reads it, and prints how that ended and
by how much the memory of the process rose. A function writes its bomb and returns what reads it.
"""

from __future__ import annotations

import io
import json
import pickle
import resource
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

EDGES = "source,target\nn1,n2\nn2,n3\n"
NODES = "id,label,a\nn1,x,1\nn2,y,2\nn3,x,0\n"
HUGE = 10**12
Read = Callable[[], Any]


def repeated(unit: bytes, times: int) -> bytes:
    """Return raw deflate data of ``unit`` repeated, without ever holding the whole."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(unit) + packer.flush(zlib.Z_FULL_FLUSH)  # ends at a byte: blocks can be joined
    return block * times + b"\x03\x00"


def gz(start: bytes, unit: bytes, times: int) -> bytes:
    """Return a gzip file of ``start`` and a repeated unit (with a wrong checksum, which comes last)."""
    first = zlib.compressobj(9, zlib.DEFLATED, -15)
    head = first.compress(start) + first.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + head + repeated(unit, times) + b"\0" * 8


def npy(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    """Return the header of an array."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": dtype, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def zipped(**members: bytes) -> bytes:
    """Return a zip file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name.replace('__', '.')}.npy", content)
    return buffer.getvalue()


def folder(place: Path, **files: bytes | str) -> Path:
    """Write a graph's folder and return it."""
    for name, content in {"nodes__csv": NODES, "edges__csv": EDGES, **files}.items():
        if content:
            (place / name.replace("__", ".")).write_bytes(
                content if isinstance(content, bytes) else content.encode()
            )
    return place


def load(path: Path, **options: Any) -> Read:
    """Return what loads a graph."""
    import bvat

    return lambda: bvat.load(path, **options)


def npz_header(place: Path) -> Read:
    """An array whose header claims 10^12 entries."""
    return load(
        folder(place, features__npz=zipped(format=npy((), "|S3") + b"csr", data=npy((HUGE,)) + b"\0" * 64))
    )


def npy_header(place: Path) -> Read:
    """A matrix whose header claims 10^12 columns."""
    return load(folder(place, edges__csv="", features__npy=npy((3, HUGE)) + b"\0" * 64))


def npz_zeros(place: Path) -> Read:
    """An array of 2 GB of zeros in 2 MB."""
    packed = repeated(b"\0" * 2**24, 128)
    size = 128 * 2**24
    name = b"about.npy"
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 8, 0, 33, 0, len(packed), size, len(name), 0)
    entry = struct.pack(
        "<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 8, 0, 33, 0, len(packed), size, len(name), 0, 0, 0, 0, 0, 0
    )
    body = local + name + packed
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(entry) + len(name), len(body), 0)
    (place / "x.npz").write_bytes(body + entry + name + end)
    return load(place / "x.npz")


def npz_claims_columns(place: Path) -> Read:
    """A stored graph with 2^31 - 1 feature columns."""
    import bvat
    from bvat.data.npz import read_npz
    from bvat.data.store import graph_to_bytes

    arrays = read_npz(
        graph_to_bytes(bvat.synthetic_graph(nodes=50, features=60, edges=80, train_per_class=2))
    )
    about = json.loads(arrays["about"].tobytes())
    about["features_shape"] = [50, 2**31 - 1]
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(place / "x.npz", **arrays)
    return lambda: bvat.NodeClassifier("none", epochs=1).fit(bvat.load(place / "x.npz"))


def npz_claims_rows(place: Path) -> Read:
    """A CSR matrix with 2^31 - 1 rows."""
    buffer = io.BytesIO()
    parts = {"indices": np.zeros(1, np.int64), "indptr": np.array([0, 1]), "data": np.ones(1)}
    np.savez(buffer, format=np.array(b"csr"), shape=np.array([2**31 - 1, 5]), **parts)
    return load(folder(place, features__npz=buffer.getvalue()))


def npz_deep(place: Path) -> Read:
    """A JSON text nested a million levels deep."""
    np.savez(place / "x.npz", about=np.frombuffer(b"[" * 10**6, np.uint8))
    return load(place / "x.npz")


def csv_line(place: Path) -> Read:
    """One line of 100 MB without a comma."""
    return load(folder(place, nodes__csv=b"a" * 10**8))


def csv_commas(place: Path) -> Read:
    """One line of 100 MB of commas."""
    return load(folder(place, nodes__csv=b"id,label" + b"," * 10**8))


def csv_second_line(place: Path) -> Read:
    """A second line of 100 MB."""
    return load(folder(place, nodes__csv=b"id,label\nn1,x" + b"x" * 10**8))


def csv_columns(place: Path) -> Read:
    """100,000 columns."""
    names = ",".join(f"c{k}" for k in range(100_000))
    rows = "".join(f"n{k},{'xy'[k % 2]}{',1' * k}{',0' * (100_000 - k)}\n" for k in range(1, 4))
    return load(folder(place, nodes__csv=f"id,label,{names}\n{rows}"))


def csv_classes(place: Path) -> Read:
    """200,000 nodes with a class each."""
    rows = "".join(f"n{k},c{k}\n" for k in range(200_000))
    return load(folder(place, nodes__csv=f"id,label\n{rows}", edges__csv="source,target\n"))


def gz_line(place: Path) -> Read:
    """A compressed line of 1 GB."""
    return load(folder(place, nodes__csv="", nodes__csv__gz=gz(b"id,label\n", b"a" * 2**24, 64)))


def gz_blank(place: Path) -> Read:
    """A billion blank lines."""
    return load(folder(place, nodes__csv="", nodes__csv__gz=gz(b"id,label\n", b"\n" * 2**24, 64)))


def gz_nodes(place: Path) -> Read:
    """200 million times the same node."""
    return load(folder(place, nodes__csv="", nodes__csv__gz=gz(b"id,label\n", b"n1,x\n" * 2**20, 200)))


def gz_rows(place: Path) -> Read:
    """200 million times the same two rows without an id."""
    packed = gz(b"label,a\n", b"one class,1\nthe other,2\n" * 2**19, 200)
    path = place / "table.csv.gz"
    path.write_bytes(packed)
    return load(path)


def gz_edges(place: Path) -> Read:
    """200 million times the same edge."""
    return load(folder(place, edges__csv="", edges__csv__gz=gz(b"source,target\n", b"n1,n2\n" * 2**20, 200)))


def gz_texts(place: Path) -> Read:
    """600 MB of text in few rows."""
    row = b'n1,x,"' + b"word " * 20_000 + b'"\n'
    packed = gz(b"id,label,text\n", row * 100, 60)
    return load(folder(place, nodes__csv="", nodes__csv__gz=packed), text="text")


def gz_text_rows(place: Path) -> Read:
    """600 MB of text in few rows without an id."""
    path = place / "table.csv.gz"
    path.write_bytes(gz(b"label,text\n", (b'x,"' + b"word " * 20_000 + b'"\n') * 100, 60))
    return load(path, text="text")


def _parquet(place: Path, columns: dict[str, Any], groups: int, **options: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    table = pa.table(columns)
    with parquet.ParquetWriter(place / "nodes.parquet", table.schema, **options) as writer:
        for _ in range(groups):
            writer.write_table(table)


def parquet_rows(place: Path) -> Read:
    """100 million equal rows, which take few bytes."""
    rows = 10**6
    _parquet(place, {"id": np.zeros(rows, np.int64), "label": np.zeros(rows, np.int64)}, 100)
    return load(folder(place, nodes__csv=""))


def parquet_texts(place: Path) -> Read:
    """50,000 times the same text of a megabyte."""
    ids = [f"n{k}" for k in range(50_000)]
    _parquet(place, {"id": ids, "label": _dictionary(["x" * 10**6], len(ids))}, 1)
    return load(folder(place, nodes__csv="", edges__csv="source,target\n"))


def _dictionary(values: list[str], size: int) -> Any:
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, np.int32)), pa.array(values))


def parquet_page(place: Path) -> Read:
    """A page of 300 MB that compresses to nothing."""
    import pyarrow as pa

    text = pa.array(["x" * (3 * 10**8)], pa.large_string())
    options = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
    _parquet(place, {"id": pa.array(["n1"]), "label": text}, 1, **options)
    del text
    return load(folder(place, nodes__csv=""))


def tar_header(place: Path) -> Read:
    """A header of a tar file that claims to be 3 GB long, and is."""
    from bvat.data.download import archive_members

    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 3 * 2**30
    content = gz(info.tobuf(tarfile.GNU_FORMAT), b"\0" * 2**24, 192)
    return lambda: archive_members("url", content, [])


def safetensors_header(place: Path) -> Read:
    """A header of 2^60 bytes."""
    from bvat import NodeClassifier

    (place / "x.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{}")
    return lambda: NodeClassifier.load(place / "x.safetensors")


def safetensors_tensor(place: Path) -> Read:
    """A tensor of 10^12 entries in a few bytes."""
    from bvat import NodeClassifier

    head = json.dumps({"x": {"dtype": "F32", "shape": [HUGE], "data_offsets": [0, 4 * HUGE]}}).encode()
    (place / "x.safetensors").write_bytes(struct.pack("<Q", len(head)) + head)
    return lambda: NodeClassifier.load(place / "x.safetensors")


def pickle_length(place: Path) -> Read:
    """Bytes of which a pickle claims 2^40."""
    from bvat.data.unpickle import unpickle

    return lambda: unpickle(b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"x.", "x")


def pickle_memo(place: Path) -> Read:
    """A memo with the index 2^31, in seven bytes."""
    from bvat.data.unpickle import unpickle

    return lambda: unpickle(b"\x80\x02]r\xff\xff\xff\x7f.", "x")


def pickle_laughs(place: Path) -> Read:
    """A list of lists of lists that would hold 2^60 items if each were built separately."""
    from bvat.data.unpickle import unpickle

    nested: list[Any] = []
    for _ in range(60):
        nested = [nested, nested]
    content = pickle.dumps(nested)
    return lambda: len(unpickle(content, "x"))


def index_numbers(place: Path) -> Read:
    """A raw file that names node 10^12."""
    sys.path.append(str(Path(__file__).parents[1] / "data"))
    from data_files import planetoid_files

    from bvat.data.planetoid import read_planetoid

    files = {**planetoid_files(), "ind.tiny.test.index": b"1000000000000\n9\n12\n10\n"}
    return lambda: read_planetoid(files, "ind.tiny.", name="x")


BOMBS: tuple[Callable[[Path], Any], ...] = (
    npz_header, npy_header, npz_zeros, npz_claims_columns, npz_claims_rows, npz_deep, csv_line,
    csv_commas, csv_second_line, csv_columns, csv_classes, gz_line, gz_blank, gz_nodes, gz_rows, gz_edges,
    gz_texts, gz_text_rows,
    parquet_rows, parquet_texts, parquet_page, tar_header, safetensors_header, safetensors_tensor,
    pickle_length, pickle_memo, pickle_laughs, index_numbers,
)  # fmt: skip


def measure(bomb: Callable[[Path], Any], place: Path) -> dict[str, Any]:
    """Read a bomb; return how that ended and the rise of the memory in MiB."""
    from bvat.data.download import Unreachable
    from bvat.errors import BvatError
    from bvat.training.memory import current_mb, peak_mb, reset_peak

    place.mkdir()
    read = bomb(place)
    reset_peak()
    before = current_mb()
    try:
        said = repr(read())
        ended = "read"
    except (BvatError, Unreachable) as error:
        said, ended = str(error), "refused"
    except BaseException as error:
        said, ended = f"{type(error).__name__}: {error}", "traceback"
    return {"bomb": bomb.__name__, "ended": ended, "said": said[:300], "mb": peak_mb() - before}


def main() -> Iterator[dict[str, Any]]:
    """Measure all bombs; the address space is limited, so that a failure is a MemoryError."""
    import bvat

    graph = bvat.synthetic_graph(nodes=50, features=60, edges=80, train_per_class=2)
    bvat.NodeClassifier("none", epochs=1).fit(graph)  # what is imported late is not the memory of a bomb
    space = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (space + 6 * 2**30,) * 2)
    chosen = sys.argv[2:]
    for bomb in BOMBS:
        if not chosen or bomb.__name__ in chosen:
            yield measure(bomb, Path(sys.argv[1]) / bomb.__name__)


if __name__ == "__main__":
    for found in main():
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
