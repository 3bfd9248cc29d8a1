"""A folder of parts: what ``bvat partition`` writes and the ranks of ``bvat train`` read.

partition.json             the graph, how it was cut, a row per part, and the checksums of the other files
splits.safetensors         train, validation and test nodes of the whole graph
names.json                 names of the nodes, if they have any
part-0/part.safetensors    own nodes, rows of Â, X and labels, send and receive lists; read memory-mapped

The folder is written under another name and renamed when it is complete.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from bvat.data.checksums import read_sealed_json, write_sealed_json, write_sealed_list
from bvat.data.tensors import file_digest, map_safetensors
from bvat.engine.dense import DenseMatrix
from bvat.engine.sparse import SparseMatrix, SymmetricMatrix
from bvat.errors import DataError, SettingsError
from bvat.graph import Graph
from bvat.graph.inputs import FeatureMatrix
from bvat.graph.targets import UNKNOWN
from bvat.graph.validation import check_matrix, check_numbers, validate_features, validate_splits
from bvat.parts.part_graph import own_share
from bvat.parts.parts import Part, check_part, cut, stack, stack_features

FORMAT = "bvat partition 1"
ABOUT, SPLITS, NAMES = "partition.json", "splits.safetensors", "names.json"
_SPLITS = ("train", "val", "test")
_TENSORS = [f.name for f in fields(Part) if f.name != "interior"]
Piece = tuple[Part, FeatureMatrix, dict[str, Any]]
"""A part, its features, and its labels and splits (and weights of edges, if there are any)."""


def is_partition(path: str | Path) -> bool:
    try:
        return (Path(path) / ABOUT).is_file()
    except (OSError, ValueError):
        return False


def part_file(part: int) -> str:
    return f"part-{part}/part.safetensors"


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say which file cannot be read, and what to do; KeyError is for what is missing in it."""
    try:
        yield
    except (OSError, ValueError, KeyError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else error
        raise DataError(f"{path} cannot be read ({why}): run bvat partition again") from None


def check_free(folder: Path) -> None:
    """Raise SettingsError unless a folder of parts can be written there."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SettingsError(f"{folder} exists and is not empty: use another --out, or remove it")


def write_parts(
    graph: Graph,
    owner: Tensor,
    folder: Path,
    *,
    fingerprint: str,
    how: Mapping[str, Any],
    rank: Tensor | None = None,
    tell: Callable[[int], object] = lambda part: None,
) -> dict[str, Any]:
    """Cut a graph and write the folder; return what ``partition.json`` says.

    Args:
        graph: the whole graph.
        owner: the part of each node, int64 (N).
        folder: must not exist, or be empty.
        fingerprint: of the graph.
        how: what to note about the cut.
        rank: order of the nodes within a part, (N); None for their numbers.
        tell: is told how many parts are written.
    """
    graph.targets.require_one_class("a folder of parts", "train on the whole graph")
    check_free(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        about = _write(graph, owner, unfinished, rank, tell)
        about |= {**how, "graph": fingerprint}
        write_sealed_json(unfinished / ABOUT, about)
        if folder.exists():
            folder.rmdir()
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return about


def _write(
    graph: Graph, owner: Tensor, folder: Path, rank: Tensor | None, tell: Callable[[int], object]
) -> dict[str, Any]:
    weights = graph.adjacency.values
    weighted = bool(weights.numel()) and any(float(end) != 1 for end in torch.aminmax(weights))
    sparse = isinstance(graph.features, SparseMatrix)
    folder.mkdir()
    files, rows = {}, []
    for number, part in enumerate(cut(graph.propagation, owner, rank)):
        share = own_share(graph, part)
        features = share.pop("features")
        tensors = {name: getattr(part, name) for name in _TENSORS} | share
        stored = ("crow", "col", "values") if sparse else ("values",)
        tensors |= {f"features.{name}": getattr(features, name) for name in stored}
        if weighted:
            tensors["weights"] = graph.adjacency.select(part.nodes).values
        name = part_file(number)
        path = folder / name
        path.parent.mkdir()
        _save(tensors, path, {"format": FORMAT, "interior": str(part.interior)})
        files[name] = file_digest(path)
        counted = {"nodes": part.nodes, "edges": part.values, "halo": part.halo, "sent": part.send}
        row = {what: tensor.numel() for what, tensor in counted.items()}
        rows.append({**row, "interior": part.interior, "bytes": path.stat().st_size})
        tell(number + 1)
    _save({name: getattr(graph, name) for name in _SPLITS}, folder / SPLITS)
    files[SPLITS] = file_digest(folder / SPLITS)
    if graph.node_names is not None:
        write_sealed_list(folder / NAMES, "names", graph.node_names)
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


def _save(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    try:
        save_file(tensors, path, metadata)
    except SafetensorError as error:  # it only says in words that the disk is full
        number = re.search(r"os error (\d+)", str(error))
        code = int(number[1]) if number else errno.EIO
        raise OSError(code, os.strerror(code), str(path)) from None


def read_about(folder: Path) -> dict[str, Any]:
    """Return what ``partition.json`` says; DataError if it is damaged or of another version."""
    with _explained(folder / ABOUT):
        about = read_sealed_json(folder / ABOUT)
    if about.get("format") != FORMAT:
        raise DataError(f"{folder} was written by another version of bvat: run bvat partition again")
    return about


def read_tensors(
    folder: Path, name: str, about: Mapping[str, Any], *, verified: bool = True
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors, memory-mapped, and the metadata of a file; DataError if it is damaged.

    Without ``verified`` its checksum is not computed again.
    """
    with _explained(folder / name):
        metadata, tensors = map_safetensors(
            folder / name, str(about["files"].get(name)) if verified else None
        )
    return tensors, metadata


def read_part(folder: Path, number: int, about: Mapping[str, Any], *, verified: bool = True) -> Piece:
    """Return a part, its features, and its labels and splits (and weights of edges, if there are any).

    Without ``verified`` neither its checksum nor its content is checked again.
    """
    tensors, metadata = read_tensors(folder, part_file(number), about, verified=verified)
    with _explained(folder / part_file(number)):
        values = tensors.pop("features.values")
        shape = (tensors["labels"].numel(), about["features"])
        features: FeatureMatrix = DenseMatrix(values)
        if about["sparse"]:
            features = SparseMatrix(tensors.pop("features.crow"), tensors.pop("features.col"), values, shape)
        part = Part(**{name: tensors.pop(name) for name in _TENSORS}, interior=int(metadata["interior"]))
        if verified:
            check_part(part, about["parts"], about["nodes"])
            _check_rest(part, features, tensors, about, about["table"][number])
    return part, features, tensors


def _check_rest(
    part: Part, features: FeatureMatrix, rest: Mapping[str, Tensor], about: Mapping[str, Any], row: Any
) -> None:
    """Raise ValueError unless features, labels and splits fit a part."""
    size = part.nodes.numel()
    if size != row["nodes"]:
        raise ValueError(f"{ABOUT} says {row['nodes']} nodes, and it has {size}")
    if isinstance(features, SparseMatrix):
        check_matrix(features, ordered=True)
    elif features.values.shape != (size, about["features"]):
        raise ValueError(f"its features have shape {tuple(features.values.shape)}")
    if features.dtype != part.values.dtype:
        raise ValueError("its features and its rows have different types")
    validate_features(features)
    check_numbers("labels", rest["labels"], len(about["classes"]), least=UNKNOWN, size=size)
    validate_splits(rest["labels"], {name: rest[name] for name in _SPLITS})


def read_parts(folder: Path) -> tuple[dict[str, Any], list[Piece], dict[str, Tensor]]:
    """Return what ``partition.json`` says, all parts, memory-mapped, and the splits of the whole graph.

    Raises:
        DataError: a file is damaged, not every node is in one part, or the splits are not those of the parts.
    """
    about = read_about(folder)
    pieces = [read_part(folder, number, about) for number in range(about["parts"])]
    splits, _ = read_tensors(folder, SPLITS, about)
    nodes = torch.cat([part.nodes for part, _, _ in pieces])
    if not torch.equal(nodes.sort()[0], torch.arange(about["nodes"])):
        raise DataError(f"{folder} does not have every node once: run bvat partition again")
    for name in _SPLITS:
        own = torch.cat([part.nodes[rest[name]] for part, _, rest in pieces])
        found = splits.get(name, own[:0])
        same = (found.shape, found.dtype) == (own.shape, own.dtype)
        if not same or not torch.equal(found.sort()[0], own.sort()[0]):
            path = folder / SPLITS
            raise DataError(f"{path} has other {name} nodes than the parts: run bvat partition again")
    return about, pieces, splits


def whole_graph(folder: Path) -> Graph:
    """Put the parts together again; needs the memory of the whole graph."""
    about, pieces, splits = read_parts(folder)
    back = torch.argsort(torch.cat([part.nodes for part, _, _ in pieces]))
    rows = []
    for number, (part, _, rest) in enumerate(pieces):
        place, numbers = part.entries()
        edge = part.nodes[place] != numbers
        counts = torch.bincount(place[edge], minlength=part.nodes.numel())
        ones = torch.ones(int(edge.sum()), dtype=part.values.dtype)
        weights = rest.get("weights", ones)
        with _explained(folder / part_file(number)):
            if weights.shape != ones.shape or weights.dtype != ones.dtype:
                raise ValueError("there is not one weight per edge")
        rows.append((counts, numbers[edge], weights))
    size = about["nodes"]
    return Graph(
        features=stack_features([x for _, x, _ in pieces]).select(back),
        adjacency=SymmetricMatrix.of(stack(rows, (size, size)).select(back)),
        labels=torch.cat([rest["labels"] for _, _, rest in pieces])[back],
        node_names=read_names(folder),
        **described(about) | {name: splits[name].clone() for name in _SPLITS},
    )


def described(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a graph that ``partition.json`` holds."""
    same = {name: about[name] for name in ("name", "validation", "repairs", "recipe")}
    return {**same, "class_names": tuple(about["classes"]), "notes": tuple(about["notes"])}


def read_names(folder: Path) -> tuple[str, ...] | None:
    """Return the names of the nodes, if they have any; DataError if the file is damaged."""
    path = folder / NAMES
    if not path.is_file():
        return None
    with _explained(path):
        return tuple(read_sealed_json(path)["names"])


def check_parts(folder: Path) -> dict[str, Any]:
    """Verify all checksums, and that the parts make up a graph; DataError otherwise."""
    about, _, _ = read_parts(folder)
    read_names(folder)
    return about
