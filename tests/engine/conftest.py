"""The shared graphs, computed on by compiled loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bvat.graph import Graph
from graph_helpers import random_graph


def _compiled(**options: Any) -> Graph:
    return random_graph(**options).with_engine("compiled")


@pytest.fixture(scope="session")
def make_graph() -> Callable[..., Graph]:
    return _compiled


@pytest.fixture(scope="session")
def graph() -> Graph:
    return _compiled()
