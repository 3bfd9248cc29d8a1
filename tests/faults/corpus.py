"""The corpus of the fuzzing: small valid files of every format, made here because that is shorter than files.

``kept_pickles`` and ``kept_stored`` are inputs that once broke a reader; they are tried every time.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import sys
import tarfile
import zipfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import scipy.sparse as sp

from bvat.data import synthetic_graph
from bvat.data.npz import read_npz
from bvat.data.store import graph_to_bytes

sys.path.append(str(Path(__file__).parents[1] / "data"))
from data_files import nell_files, planetoid_files, python2_pickle
from reader_files import EDGES, NODES

TABLES = {
    "plain": (NODES, EDGES),
    "split": (
        "id,label,split,a\nn1,x,train,1\nn2,y,train,0\nn3,x,val,.5\nn4,y,test,2\nn5,,,1\n",
        "source,target,weight\nn1,n2,1\nn2,n3,2.5\nn3,n4,1e-3\nn5,n1,0\n",
    ),
    "quoted": (
        'id,label,text\n"n,1",x,"two words here"\nn2,y,"more ""words"" here"\n',
        'source,target\n"n,1",n2\n',
    ),
}


def npz(compressed: bool = False, **arrays: Any) -> bytes:
    """Return an ``.npz`` file, with pickled objects if there are any."""
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, allow_pickle=True, **arrays)
    return buffer.getvalue()


@cache
def pickles() -> tuple[bytes, ...]:
    """Return pickles of Python 2 and 3."""
    old = [content for name, content in planetoid_files().items() if not name.endswith("index")]
    values = [sp.csr_matrix(np.eye(3)), np.arange(6).reshape(2, 3), {0: [1, 2], 1: [0]}, [1.5, "x", None]]
    new = (pickle.dumps(value, protocol) for value in values for protocol in (0, 2, 4, 5))
    return (*old, *map(python2_pickle, values), *new)


@cache
def stored_arrays() -> tuple[dict[str, Any], ...]:
    """Return the arrays of two stored graphs, one with sparse and one with dense features."""
    small = synthetic_graph(nodes=30, edges=60, features=8, classes=3, words_per_node=3,
                            train_per_class=3, val=6, test=9)  # fmt: skip
    sparse = read_npz(graph_to_bytes(small))
    dense = {k: v for k, v in sparse.items() if not k.startswith("features.")}
    dense["features"] = small.features.to_dense().numpy()
    return sparse, dense


@cache
def benchmark_arrays() -> dict[str, Any]:
    """Return the arrays of a graph in the format of the benchmarks."""
    ring = sp.csr_array(np.eye(9)[[*range(1, 9), 0]])
    arrays = {f"adj_{part}": np.array(getattr(ring, part)) for part in ("data", "indices", "indptr", "shape")}
    labels = np.array([0, 1, 2] * 3)
    return {
        **arrays,
        "attr_matrix": np.eye(9, 4) + 1,
        "labels": labels,
        "class_names": np.array(["a", "b", "c"]),
    }


@cache
def feature_arrays() -> dict[str, Any]:
    """Return a matrix in the form of scipy's files, for five nodes."""
    matrix = sp.csr_array(np.eye(5, 3) + np.eye(5, 3, 1))
    parts = {part: getattr(matrix, part) for part in ("data", "indices", "indptr")}
    return {"format": np.array(b"csr"), "shape": np.array([5, 3]), **parts}


@cache
def parquet_files() -> tuple[bytes, ...]:
    """Return tables in Parquet files."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    columns = {
        "id": ["n1", "n2", "n3", "n4", "n5"],
        "label": ["x", "y", None, "x", "y"],
        "a": [1.0, 2, 3, 4, 5],
    }
    files = []
    for options in ({}, {"compression": "none", "use_dictionary": False}, {"compression": "zstd"}):
        buffer = io.BytesIO()
        parquet.write_table(pa.table(columns), buffer, **options)
        files.append(buffer.getvalue())
    return tuple(files)


@cache
def archives() -> tuple[bytes, ...]:
    """Return tar files with the members of a data set."""
    found = []
    for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:", format=kind) as archive:
            for name, content in nell_files().items():
                entry = tarfile.TarInfo(("d" * 120) + "/" + name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        found.append(buffer.getvalue())
    return tuple(found)


ODD_JSON: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 1e999, 2**70, "", "x", "\x1b[31m", "\ud800", [], [1], ["a"], ["a", "a", "a"], {},
    {"a": 1}, [None, None, None], [[1]], [30, 8], [30, 2**31], [30, 2**62], [-30, 8],
)  # fmt: skip


def odd_array(rng: Random, like: Any) -> Any:
    """Return an array that differs from ``like`` in type, shape or values."""
    kind = rng.randrange(0 if like.dtype.kind in "biuf" else 1, 12)
    if kind == 0:
        with np.errstate(all="ignore"):
            return like.astype(
                rng.choice(["i1", "u1", "i4", "i8", "u8", "f2", "f4", "f8", "c8", "?", ">f4", ">i8"])
            )
    if kind == 1:
        return like.reshape(rng.choice([(1, -1), (-1, 1), (-1,), (1, 1, -1)]))
    if kind == 2:
        return like[: rng.randrange(len(like) + 1)] if like.ndim else like
    if kind == 3:
        return np.concatenate([like, like]) if like.ndim else np.array([like, like])
    if kind == 4:
        return np.zeros(rng.choice([(), 0, 1, (0, 5), (5, 0), 30, (30, 8)]), like.dtype)
    if kind == 5:
        return np.array(rng.choice(["x", b"x", [None], [{}], ["a"] * 30, [1j] * 30, "2020-01-01"]))
    if kind == 6:
        return np.full(like.shape, rng.choice([np.nan, np.inf, 1e30, 1e-30, 3e38, -1.0]))
    changed = np.array(like, copy=True)
    if changed.size and changed.dtype.kind in "iuf":
        value = rng.choice([0, 1, -1, 2, 3, 29, 30, 2**31 - 1, -(2**31), 127, 1e30, -0.0, np.nan, np.inf])
        if changed.dtype.kind != "f":
            value = int(value) if np.isfinite(value) else 7
            value %= 2 ** (8 * changed.dtype.itemsize - 1)
        with np.errstate(all="ignore"):
            changed.flat[rng.randrange(changed.size)] = np.float64(value).astype(changed.dtype)
    elif changed.size and changed.dtype.kind == "b":
        changed.flat[rng.randrange(changed.size)] ^= True
    return changed


def odd_arrays(rng: Random, arrays: dict[str, Any]) -> bytes:
    """Return an ``.npz`` file in which one or two arrays, or values of its JSON text, are odd."""
    changed = dict(arrays)
    for _ in range(rng.choice([1, 1, 2])):
        name = rng.choice(sorted(changed)) if changed else "x"
        if name == "about" and rng.random() < 0.9:
            about = json.loads(arrays["about"].tobytes())
            if isinstance(about, dict) and about:
                about[rng.choice(sorted(about))] = rng.choice(ODD_JSON)
            changed["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        elif rng.random() < 0.07:
            changed.pop(name, None)
        else:
            changed[name] = odd_array(rng, np.asarray(changed.get(name, np.zeros(3))))
    return npz(rng.random() < 0.1, **changed)


def odd_stored(rng: Random) -> bytes:
    """Return a stored graph with odd arrays."""
    return odd_arrays(rng, rng.choice(stored_arrays()))


_INTERESTING = (
    b"\x00", b"\xff", b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"\xff" * 8, b"\n", b",", b'"', b"\r", b"'",
    b"(" * 40, b"1e999", b"nan", b"-1", b"99999999999999999999", b"%", b" ", b"PK\x03\x04", b"\x93NUMPY",
    b"\xef\xbb\xbf", b".",
)  # fmt: skip


def mutated(rng: Random, content: bytes) -> bytes:
    """Return the content with one to four random changes: bits, cuts, repeats, insertions."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        place = rng.randrange(len(data) + 1)
        length = rng.choice([1, 1, 2, 4, 8, 30])
        match rng.randrange(7):
            case 0 | 1 if place < len(data):
                data[place] ^= 1 << rng.randrange(8)
            case 2:
                del data[place : place + length]
            case 3:
                data[place:place] = data[place : place + length] * rng.choice([1, 3])
            case 4:
                data[place:place] = rng.choice(_INTERESTING)
            case 5:
                data[place : place + length] = rng.randbytes(length)
            case _:
                if rng.random() < 0.3:
                    del data[place:]
    return bytes(data)


def odd_zip(rng: Random) -> bytes:
    """Return a zip file whose member is an odd ``.npy`` file, so that the checksum does not hide it."""
    source = rng.choice(stored_arrays())
    buffer = io.BytesIO()
    method = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    changed = rng.choice(sorted(source))
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, array in source.items():
            one = io.BytesIO()
            np.save(one, array)
            content = one.getvalue()
            archive.writestr(f"{name}.npy", mutated(rng, content) if name == changed else content)
    whole = buffer.getvalue()
    return mutated(rng, whole) if rng.random() < 0.3 else whole


def gzipped(rng: Random, content: bytes) -> bytes:
    """Return the content compressed, sometimes with a change after that."""
    packed = gzip.compress(content, 1)
    return mutated(rng, packed) if rng.random() < 0.5 else packed


def kept_pickles() -> tuple[bytes, ...]:
    """Return pickles that once broke the reader or its rule of one line per error, and one with code."""
    return (
        b"\x80\x04\x8c\x03a\nb\x8c\x01c\x93.",
        b"cos\nsystem\n(S'touch hacked'\ntR.",
        b"\x80\x02" + b"]" * 2000 + b"a" * 1999 + b".",
        b"\x80\x02]q\x00h\x00a.",
    )


def kept_stored() -> tuple[bytes, ...]:
    """Return stored graphs that once broke the reader or training."""
    sparse, dense = stored_arrays()
    x, a = dense["features"], sparse["adjacency.values"]
    return (
        *(npz(**{**dense, "features": x.astype(kind)}) for kind in ("u8", "?", "f2", "c8", "f8")),
        *(npz(**{**sparse, "adjacency.values": a.astype(kind)}) for kind in ("f2", "i8", "f8")),
        npz(**{**sparse, "train": sparse["train"][None]}),
        npz(**{**sparse, "about": np.frombuffer(b"[" * 10**5, np.uint8)}),
    )
