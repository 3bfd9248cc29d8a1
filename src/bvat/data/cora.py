"""Cora from ``cora.content`` and ``cora.cites``, in the node order of the Planetoid files.

Both sources contain the same papers, words and citations but number the papers differently, and the public
split refers to Planetoid's numbers. ``cora_order.txt`` lists the paper ids in Planetoid's order; with it,
the two sources give exactly the same graph.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files as package_files

import numpy as np
import scipy.sparse as sp

from bvat.data.planetoid import OFFICIAL, VALIDATION_NODES
from bvat.errors import DataError
from bvat.graph import Graph

_TRAIN, _TEST = 140, 1000


@cache
def paper_ids() -> tuple[str, ...]:
    text = package_files("bvat.data").joinpath("cora_order.txt").read_text(encoding="ascii")
    return tuple(line for line in text.splitlines() if not line.startswith("#"))


def read_cora(
    content: bytes,
    cites: bytes,
    *,
    class_names: tuple[str, ...],
    order: tuple[str, ...] | None = None,
    name: str = "cora",
    train: int = _TRAIN,
    test: int = _TEST,
) -> Graph:
    """Build Cora from its original text files.

    ``content`` has lines of paper id, word indicators and class, separated by tabs, and ``cites`` of cited
    and citing paper id. The first ``train`` nodes of ``order`` (default: Planetoid's) are training nodes, the
    500 after them are for validation, the last ``test`` are test nodes.
    """
    order = paper_ids() if order is None else order
    rows = [line.split(b"\t") for line in content.splitlines()]
    node = {paper.encode(): k for k, paper in enumerate(order)}
    classes = {label.encode(): k for k, label in enumerate(class_names)}
    try:
        place = np.array([node[row[0]] for row in rows], dtype=np.int64)
        labels = np.empty(len(order), dtype=np.int64)
        labels[place] = [classes[row[-1]] for row in rows]
        words = np.array([b"".join(row[1:-1]) for row in rows])
        ends = np.array([[node[paper] for paper in line.split()] for line in cites.splitlines()])
    except KeyError as unknown:
        raise DataError(
            f"cora.content or cora.cites has the unknown entry {unknown}: get the original files"
        ) from None
    except ValueError:
        raise DataError("a line of cora.cites does not name two papers: get the original files") from None
    width = words.dtype.itemsize
    indicators = words.view(np.uint8).reshape(len(rows), width) == ord("1")
    features = np.zeros((len(order), width), dtype=np.float32)
    features[place] = indicators
    if len(np.unique(place)) != len(order) or ends.ndim != 2 or ends.shape[1] != 2:
        raise DataError(
            "cora.content does not list each paper once, or cora.cites is truncated: get the original files"
        )
    # Planetoid lists each citation at both of its ends.
    both = np.concatenate([ends, ends[:, ::-1]])
    entries = (np.ones(len(both), np.float32), (both[:, 0], both[:, 1]))
    return Graph.build(
        sp.csr_array(features),
        sp.coo_array(entries, shape=(len(order), len(order))),
        labels,
        train=np.arange(train),
        val=np.arange(train, min(train + VALIDATION_NODES, len(order) - test)),
        test=np.arange(len(order) - test, len(order)),
        class_names=class_names,
        name=name,
        node_names=order,
        validation=OFFICIAL,
    )
