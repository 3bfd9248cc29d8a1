"""What earlier versions saved can be read, and predicts what it predicted then (docs/upgrading.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bvat
from bvat.cli.options import read_settings_file
from bvat.inference import open_run
from cli_helpers import bvat as command

VERSIONS = sorted(path for path in Path(__file__).parent.iterdir() if (path / "graph.npz").is_file())


@pytest.fixture(params=VERSIONS, ids=lambda path: path.name)
def saved(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.param
    return folder


@pytest.fixture
def expected(saved: Path) -> dict[str, np.ndarray]:
    found = json.loads((saved / "probabilities.json").read_text("utf-8"))
    return {name: np.array(values) for name, values in found.items()}


def test_the_present_version_is_among_them() -> None:
    """If this fails, run: python tests/compatibility/write.py"""
    assert bvat.__version__ in [path.name for path in VERSIONS]


def test_graphs_and_classifiers(saved: Path, expected: dict[str, np.ndarray]) -> None:
    graph = bvat.load(saved / "graph.npz")
    assert (graph.num_nodes, graph.class_names) == (60, ("cats", "dogs", "fish"))
    found = bvat.NodeClassifier.load(saved / "classifier.safetensors").predict_proba(graph)
    np.testing.assert_allclose(found, expected["classifier"], atol=1e-4)


@pytest.mark.parametrize("name", ["run", "ensemble"])
def test_runs(name: str, saved: Path, expected: dict[str, np.ndarray], tmp_path: Path, capsys: Any) -> None:
    opened = open_run(saved / name)
    found = opened.classifier(opened.graph()).probabilities(opened.graph())
    np.testing.assert_allclose(found.numpy(), expected[name], atol=1e-4)
    table = tmp_path / "table.csv"
    assert command(["predict", str(saved / name), "--out", str(table)], capsys)[0] == 0
    written = np.genfromtxt(table, delimiter=",", skip_header=1)[:, -3:]
    np.testing.assert_allclose(written, expected[name], atol=1e-4)


def test_settings(saved: Path) -> None:
    found = read_settings_file(saved / "settings.toml")
    assert bvat.Settings(**found).as_dict().items() >= found.items()
    again = bvat.Settings(**read_settings_file(saved / "run"))
    assert (again.method, again.model, again.epochs) == ("vat", "gcn", 12)
