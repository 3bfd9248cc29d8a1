"""The examples in docstrings run and give what they show."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import bvat
from bvat.perturb.methods import METHODS

PACKAGE = Path(bvat.__file__).parent


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What an example may use without defining it: the usual modules, a graph, a model, a regulariser."""
    generator = torch.Generator().manual_seed(0)
    graph = bvat.synthetic_graph(nodes=300, edges=900, features=100)
    model = bvat.GCN(graph.num_features, graph.num_classes, generator=generator)
    logits = model(graph, generator=generator)
    regulariser = bvat.SBVAT(generator=generator)
    modules = {"bvat": bvat, "np": np, "torch": torch, "F": F}
    return {**modules, "graph": graph, "model": model, "logits": logits, "regulariser": regulariser}


def modules_with_examples() -> list[str]:
    """Return the modules that have an example, without importing the others: some need extras."""
    found = [path for path in sorted(PACKAGE.rglob("*.py")) if ">>> " in path.read_text("utf-8")]
    return [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in found]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples(name: str, names: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(METHODS, "added", dict(METHODS.added))
    module = import_module(name.removesuffix(".__init__"))
    result = doctest.testmod(
        module, extraglobs=names, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    assert not result.failed


def test_there_are_examples() -> None:
    assert len(modules_with_examples()) > 4
