"""The packages form layers: imports go one way, and there are no cycles."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PICTURE = runpy.run_path(str(ROOT / "docs" / "pictures" / "imports.py"))
read_imports, room_of, draw = PICTURE["read_imports"], PICTURE["room_of"], PICTURE["draw"]

RANK = {room: rank for rank, room in enumerate(PICTURE["ORDER"])} | {"_version": 0}
TOP_LEVEL = {"__main__", "_version", "errors", "plugins", "testing"}
"""The only modules beside the packages; the package itself and ``__main__`` may import everything."""

Imports = dict[str, set[str]]


def stray_modules(imports: Imports) -> list[str]:
    """Return the modules and packages at the top level that have no place in the order."""
    top = {room_of(name) for name in imports} - {""}
    return sorted(top - RANK.keys() - TOP_LEVEL)


def upward_imports(imports: Imports) -> list[str]:
    """Return the imports of a higher package by a lower one."""
    highest = len(RANK)

    def rank(name: str) -> int:
        return RANK.get(room_of(name), highest)

    return sorted(
        f"{name} imports {target}"
        for name, targets in imports.items()
        for target in targets
        if rank(name) < rank(target)
    )


def imports_of_loops(imports: Imports) -> list[str]:
    """Return the imports of compiled loops by other packages: the engine decides where they run."""
    return sorted(
        f"{name} imports {target}"
        for name, targets in imports.items()
        for target in targets
        if target in ("bvat.engine.loops", "bvat.engine.rowwise") and room_of(name) != "engine"
    )


def cycles(imports: Imports) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or through others."""

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        left = [start]
        while left:
            for target in imports.get(left.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    left.append(target)
        return seen

    below = {name: reach(name) for name in imports}
    groups = {tuple(sorted(b for b in below[a] if a in below.get(b, ()))) for a in imports if a in below[a]}
    return [list(group) for group in sorted(groups)]


@pytest.fixture(scope="module")
def imports() -> Imports:
    """The imports of the package itself."""
    return read_imports()


def test_the_top_level_has_only_packages_that_are_in_the_order(imports: Imports) -> None:
    assert stray_modules(imports) == []


def test_no_package_imports_a_higher_one(imports: Imports) -> None:
    assert upward_imports(imports) == []


def test_only_the_engine_imports_compiled_loops(imports: Imports) -> None:
    assert imports_of_loops(imports) == []


def test_no_modules_import_each_other(imports: Imports) -> None:
    assert cycles(imports) == []


def test_the_picture_of_the_imports_is_current(imports: Imports) -> None:
    """If this fails, run: python docs/pictures/imports.py"""
    assert (ROOT / "docs/pictures/imports.svg").read_text("utf-8") == draw(imports)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with imports of every kind."""
    files = {
        "__init__.py": "import typing\nif typing.TYPE_CHECKING:\n    from bvat.graph import Graph\n",
        "errors.py": "",
        "graph/__init__.py": "from bvat.graph.graph import Graph\n",
        "graph/graph.py": "from ..errors import BvatError\nimport os, bvat.graph.sparse as s\n",
        "graph/sparse.py": "def f():\n    from bvat.graph import graph\n",
        "models/__init__.py": "from . import gcn\n",
        "models/gcn.py": "from bvat import errors\nfrom bvat.graph import Graph, sparse\n",
        "data/__init__.py": "from importlib import import_module\nimport_module('bvat.models.gcn')\n",
        "helpers.py": "",
    }
    for name, text in files.items():
        path = tmp_path / "bvat" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "bvat"


def test_imports_of_every_kind_are_found(package: Path) -> None:
    assert read_imports(package) == {
        "bvat": {"bvat.graph"},
        "bvat.errors": set(),
        "bvat.helpers": set(),
        "bvat.graph": {"bvat.graph.graph"},
        "bvat.graph.graph": {"bvat.errors", "bvat.graph.sparse"},
        "bvat.graph.sparse": {"bvat.graph.graph"},
        "bvat.models": {"bvat.models.gcn"},
        "bvat.models.gcn": {"bvat.errors", "bvat.graph", "bvat.graph.sparse"},
        "bvat.data": {"bvat.models.gcn"},
    }


def test_the_checks_can_fail(package: Path) -> None:
    imports = read_imports(package)
    assert stray_modules(imports) == ["helpers"]
    assert upward_imports(imports) == ["bvat.data imports bvat.models.gcn"]
    assert cycles(imports) == [["bvat.graph.graph", "bvat.graph.sparse"]]
    imports["bvat.errors"] = {"bvat"}
    imports["bvat.engine.cpu"] = imports["bvat.models"] = {"bvat.engine.loops"}
    assert imports_of_loops(imports) == ["bvat.models imports bvat.engine.loops"]
    imports["bvat.graph.sparse"] = {"bvat.cli.main"}
    assert upward_imports(imports) == [
        "bvat.data imports bvat.models.gcn",
        "bvat.errors imports bvat",
        "bvat.graph.sparse imports bvat.cli.main",
    ]
    assert 'class="against"' in draw(imports | {"bvat.cli.main": set()})


def test_imports_that_go_down_are_fine() -> None:
    imports = {
        "bvat": {"bvat.cli"},
        "bvat.cli": {"bvat.graph"},
        "bvat.graph": {"bvat.errors"},
        "bvat.errors": set(),
    }
    assert not stray_modules(imports)
    assert not upward_imports(imports)
    assert not cycles(imports)
