"""Export trained models with their preprocessing, for programs that have torch but not bvat."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from bvat._version import __version__
from bvat.baselines.table import AUTO, BASELINES, PUBLISHED
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.inference.classifier import Classifier
from bvat.inference.plain import Edges, ExportedModel, network_name
from bvat.inference.tables import check_writable, write_text
from bvat.models.table import MODELS

LARGEST = 20_000_000
"""Entries of the features on which an export is checked; larger graphs are checked on a part."""
TOLERANCE = 1e-4
"""Largest difference of a probability between bvat and the exported model; rounding makes about 1e-6."""


def exported(classifier: Classifier, graph: Graph, largest: int = LARGEST) -> tuple[ExportedModel, float]:
    """Return models in plain PyTorch, and how far their probabilities are from bvat's.

    Of a graph with more than ``largest`` entries of features only the first nodes are compared.

    Raises:
        SettingsError: this model cannot be exported, or its export gives other probabilities.
    """
    classifier.targets.require_one_class("export", "use bvat predict")
    settings = classifier.settings
    if graph.directed:
        raise SettingsError("models of directed graphs cannot be exported: use bvat predict")
    if any(getattr(model, "edge_features", 0) for model in classifier.models):
        raise SettingsError("models that read edge attributes cannot be exported: use bvat predict")
    if settings.method in PUBLISHED:
        raise SettingsError(f"{settings.method} cannot be exported: write its predictions with bvat predict")
    kind = settings.method if settings.method in BASELINES else settings.model
    if not hasattr(ExportedModel, network_name(kind)):
        able = ", ".join(name for name in MODELS if hasattr(ExportedModel, network_name(name)))
        raise SettingsError(f"the model {settings.model!r} cannot be exported: train one of {able}")
    scaling, tensors, features = _scaling(classifier, graph)
    about = {
        "model": kind,
        "models": len(classifier.models),
        "temperature": classifier.temperature,
        **(MODELS["random-propagation"].options() if kind == AUTO else settings.of_model).as_dict(),
        "classes": list(classifier.class_names),
        "features": features,
        "scaling": scaling,
        "words": list(classifier.recipe.get("text", {}).get("idf", {})),
        "version": __version__,
    }
    for number, model in enumerate(classifier.models):
        for name, tensor in model.state_dict().items():
            tensors[f"model{number}.{name}"] = tensor.detach().cpu().float().contiguous()
    plain = ExportedModel(about, tensors).eval()
    part = _first_nodes(graph.to("cpu"), max(2, largest // graph.num_features))
    error = _difference(classifier, plain, part)
    if not error <= TOLERANCE:
        raise SettingsError(
            f"the exported {kind} differs from the trained one by {error:.2g} in a probability, so "
            "nothing was written: use bvat predict for this run"
        )
    return plain, error


def write_export(plain: ExportedModel, path: Path) -> list[Path]:
    """Write ``.safetensors`` and the program that reads it; return the files."""
    if path.suffix != ".safetensors":
        raise SettingsError(f"{path} has an unknown format: use a name that ends in .safetensors")
    program = path.with_suffix(".py")
    source = resources.files("bvat.inference").joinpath("plain.py").read_bytes()
    check_writable(path, program)
    if program.exists() and program.read_bytes() != source:
        raise SettingsError(f"{program} exists and is another program: choose another name for {path.name}")
    tensors = {name: plain.weight(name) for name in plain.names}
    write_text(path, save(tensors, {"about": json.dumps(plain.about)}))
    write_text(program, source)
    return [path, program]


def _scaling(
    classifier: Classifier, graph: Graph
) -> tuple[list[tuple[str, int]], dict[str, Tensor], list[str]]:
    """Return how raw features are scaled part by part, with what numbers, and their names."""
    scaling: list[tuple[str, int]] = []
    tensors: dict[str, Tensor] = {}
    names: list[str] = []
    for kind, width, of, numbers in _parts(classifier.recipe):
        tensors |= {f"{n}.{len(scaling)}": torch.tensor(v, dtype=torch.float64) for n, v in numbers.items()}
        scaling.append((kind, width))
        names += of
    if not scaling:
        width = classifier.num_features
        return [("rows" if _rows_sum_to_one(graph) else "none", width)], {}, list(map(str, range(width)))
    return scaling, tensors, names


def _parts(recipe: Mapping[str, Any]) -> Iterator[tuple[str, int, list[str], dict[str, list[float]]]]:
    """Yield how each part of the features is scaled, its width, the names of raw features, and numbers."""
    if columns := recipe.get("columns"):
        numbers = {name: columns[name] for name in ("mean", "scale") if name in columns}
        yield "columns" if numbers else "rows", len(columns["names"]), columns["names"], numbers
    if words := recipe.get("text", {}).get("idf"):
        yield "text", len(words), [f"word {word}" for word in words], {"idf": list(words.values())}
    if matrix := int(recipe.get("matrix", 0)):
        yield "rows", matrix, [f"matrix {k}" for k in range(matrix)], {}
    if degree := int(recipe.get("degree", 0)):
        yield "degree", degree, [], {}


def _rows_sum_to_one(graph: Graph) -> bool:
    totals = graph.features.row_sums()
    return bool((((totals - 1).abs() < 1e-4) | (totals == 0)).all())


def _difference(classifier: Classifier, plain: ExportedModel, part: Graph) -> float:
    """Return the largest difference of a probability."""
    adjacency = part.adjacency
    edges = Edges(part.num_nodes, torch.stack([adjacency.rows, adjacency.col]).long(), adjacency.values)
    ours = classifier.probabilities(part)
    with torch.no_grad():
        return float((plain.probabilities(part.features.to_dense().float(), edges) - ours).abs().max())


def _first_nodes(graph: Graph, count: int) -> Graph:
    if graph.num_nodes <= count:
        return graph
    kept = torch.arange(count)
    features, adjacency = graph.features.select(kept), graph.adjacency.to_scipy()[:count, :count]
    about: dict[str, Any] = {"train": kept[:1], "class_names": graph.class_names}
    return Graph.build(features, adjacency, torch.zeros(count).long(), normalize=False, **about)
