"""A folder of parts: what ``bvat partition`` writes and the ranks of ``bvat train`` read.

partition.json             the graph, how it was cut, a row per part, and the checksums of the other files
splits.safetensors         train, validation and test nodes of the whole graph
names.json                 names of the nodes, if they have any
part-0/part.safetensors    own nodes, rows of Â, X and labels, send and receive lists; read memory-mapped

The folder is written under another name and renamed when it is complete.
"""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bvat.data.checksums import read_sealed_json, write_sealed_json
from bvat.distributed.part_graph import own_share
from bvat.distributed.parts import Part, cut
from bvat.errors import DataError, SettingsError
from bvat.graph import Graph
from bvat.graph.dense import DenseMatrix
from bvat.graph.inputs import FeatureMatrix
from bvat.graph.sparse import SparseMatrix, SymmetricMatrix

FORMAT = "bvat partition 1"
ABOUT, SPLITS, NAMES = "partition.json", "splits.safetensors", "names.json"
_SPLITS = ("train", "val", "test")


def is_partition(path: str | Path) -> bool:
    """Return whether a path is a folder of parts."""
    try:
        return (Path(path) / ABOUT).is_file()
    except (OSError, ValueError):
        return False


def part_file(part: int) -> str:
    """Return the name of the file of a part."""
    return f"part-{part}/part.safetensors"


def write_parts(
    graph: Graph,
    owner: Tensor,
    folder: Path,
    *,
    fingerprint: str,
    how: Mapping[str, Any],
    rank: Tensor | None = None,
) -> dict[str, Any]:
    """Cut a graph and write the folder; return what ``partition.json`` says.

    Args:
        graph: the whole graph.
        owner: the part of each node, int64 (N).
        folder: must not exist, or be empty.
        fingerprint: of the graph.
        how: what to note about the cut.
        rank: order of the nodes within a part, (N); None for their numbers.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SettingsError(f"{folder} exists and is not empty: use another --out, or remove it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        about = _write(graph, owner, unfinished, rank)
        about |= {**how, "graph": fingerprint}
        write_sealed_json(unfinished / ABOUT, about)
        if folder.exists():
            folder.rmdir()
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return about


def _write(graph: Graph, owner: Tensor, folder: Path, rank: Tensor | None) -> dict[str, Any]:
    weighted = bool((graph.adjacency.values != 1).any())
    sparse = isinstance(graph.features, SparseMatrix)
    folder.mkdir()
    files, rows = {}, []
    for number, part in enumerate(cut(graph.propagation, owner, rank)):
        share = own_share(graph, part)
        features = share.pop("features")
        tensors = {f.name: getattr(part, f.name) for f in fields(Part) if f.name != "interior"} | share
        if sparse:
            tensors |= {f"features.{name}": getattr(features, name) for name in ("crow", "col", "values")}
        else:
            tensors["features.values"] = features.values
        if weighted:
            tensors["weights"] = graph.adjacency.select(part.nodes).values
        name = part_file(number)
        path = folder / name
        path.parent.mkdir()
        save_file(tensors, path, {"format": FORMAT, "interior": str(part.interior)})
        files[name] = file_digest(path)
        rows.append(
            {
                "nodes": part.nodes.numel(),
                "edges": part.values.numel(),
                "interior": part.interior,
                "halo": part.halo.numel(),
                "sent": part.send.numel(),
                "bytes": path.stat().st_size,
            }
        )
    save_file({name: getattr(graph, name) for name in _SPLITS}, folder / SPLITS)
    files[SPLITS] = file_digest(folder / SPLITS)
    if graph.node_names is not None:
        write_sealed_json(folder / NAMES, {"names": list(graph.node_names)})
    return {
        "format": FORMAT,
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "sparse": sparse,
        "weighted": weighted,
        "classes": list(graph.class_names),
        "validation": graph.validation,
        "notes": list(graph.notes),
        "repairs": dict(graph.repairs),
        "recipe": dict(graph.recipe),
        "parts": len(rows),
        "table": rows,
        "files": files,
    }


def file_digest(path: Path) -> str:
    """Return the sha256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_about(folder: Path) -> dict[str, Any]:
    """Return what ``partition.json`` says; DataError if it is damaged or of another version."""
    try:
        about = read_sealed_json(folder / ABOUT)
    except (OSError, ValueError) as error:
        raise DataError(f"{folder / ABOUT} cannot be read ({error}): run bvat partition again") from None
    if about.get("format") != FORMAT:
        raise DataError(f"{folder} was written by another version of bvat: run bvat partition again")
    return about


def read_tensors(
    folder: Path, name: str, about: Mapping[str, Any], *, verified: bool = True
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors, memory-mapped, and the metadata of a file; DataError if it is damaged.

    Without ``verified`` its checksum is not computed again.
    """
    path = folder / name
    try:
        if verified and file_digest(path) != about["files"].get(name):
            raise ValueError("its checksum is wrong")
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise DataError(f"{path} cannot be read ({error}): run bvat partition again") from None


def read_part(
    folder: Path, number: int, about: Mapping[str, Any], *, verified: bool = True
) -> tuple[Part, FeatureMatrix, dict[str, Any]]:
    """Return a part, its features, and its labels and splits (and weights of edges, if there are any)."""
    tensors, metadata = read_tensors(folder, part_file(number), about, verified=verified)
    values = tensors.pop("features.values")
    shape = (tensors["labels"].numel(), int(about["features"]))
    features: FeatureMatrix = DenseMatrix(values)
    if about["sparse"]:
        features = SparseMatrix(tensors.pop("features.crow"), tensors.pop("features.col"), values, shape)
    names = [f.name for f in fields(Part) if f.name != "interior"]
    part = Part(**{name: tensors.pop(name) for name in names}, interior=int(metadata["interior"]))
    return part, features, tensors


def whole_graph(folder: Path) -> Graph:
    """Put the parts together again; needs the memory of the whole graph."""
    about = read_about(folder)
    splits, _ = read_tensors(folder, SPLITS, about)
    pieces = [read_part(folder, number, about) for number in range(about["parts"])]
    order = torch.cat([part.nodes for part, _, _ in pieces])
    back = torch.argsort(order)
    rows, values = [], []
    for part, _, rest in pieces:
        numbers = torch.cat([part.nodes, part.halo])[part.col.long()]
        own = torch.repeat_interleave(part.nodes, torch.diff(part.crow.long()))
        edge = own != numbers
        counts = torch.zeros(part.nodes.numel(), dtype=torch.int64)
        place = torch.repeat_interleave(torch.arange(part.nodes.numel()), torch.diff(part.crow.long()))
        counts.index_add_(0, place[edge], torch.ones(int(edge.sum()), dtype=torch.int64))
        weights = rest.get("weights", torch.ones(int(edge.sum()), dtype=part.values.dtype))
        rows.append((counts, numbers[edge]))
        values.append(weights)
    size = int(about["nodes"])
    stacked = stack([(c, n, w) for (c, n), w in zip(rows, values, strict=True)], (size, size)).select(back)
    features: FeatureMatrix
    if about["sparse"]:
        sparse = [(torch.diff(x.crow.long()), x.col, x.values) for _, x, _ in pieces]  # type: ignore[union-attr]
        features = stack(sparse, (size, int(about["features"]))).select(back)
    else:
        features = DenseMatrix(torch.cat([x.values for _, x, _ in pieces])[back])
    names = folder / NAMES
    return Graph(
        features=features,
        adjacency=SymmetricMatrix(stacked.crow, stacked.col, stacked.values, stacked.shape),
        labels=torch.cat([rest["labels"] for _, _, rest in pieces])[back],
        **{name: splits[name].clone() for name in _SPLITS},
        class_names=tuple(about["classes"]),
        name=about["name"],
        node_names=tuple(read_sealed_json(names)["names"]) if names.is_file() else None,
        validation=about["validation"],
        repairs=about["repairs"],
        notes=tuple(about["notes"]),
        recipe=about["recipe"],
    )


def stack(blocks: list[tuple[Tensor, Tensor, Tensor]], shape: tuple[int, int]) -> SparseMatrix:
    """Return blocks of rows, each as counts, columns and values, below each other."""
    counts = torch.cat([counts for counts, _, _ in blocks])
    crow = torch.zeros(counts.numel() + 1, dtype=torch.int32)
    crow[1:] = torch.cumsum(counts, 0)
    col = torch.cat([col for _, col, _ in blocks]).to(torch.int32)
    return SparseMatrix(crow, col, torch.cat([values for _, _, values in blocks]), shape)


def check_parts(folder: Path) -> dict[str, Any]:
    """Verify all checksums, that every node has one owner, and that all lists fit; DataError otherwise."""
    about = read_about(folder)
    read_tensors(folder, SPLITS, about)
    pieces = [read_part(folder, number, about)[0] for number in range(about["parts"])]
    nodes = torch.cat([part.nodes for part in pieces])
    if not torch.equal(nodes.sort()[0], torch.arange(about["nodes"])):
        raise DataError(f"{folder} does not have every node once: run bvat partition again")
    for a, sender in enumerate(pieces):
        sent = torch.split(sender.nodes[sender.send], sender.send_counts.tolist())
        for b, receiver in enumerate(pieces):
            expected = torch.split(receiver.halo, receiver.receive_counts.tolist())[a]
            if not torch.equal(sent[b], expected):
                raise DataError(
                    f"{folder / part_file(a)} does not send what part {b} expects: run bvat partition again"
                )
    return about
