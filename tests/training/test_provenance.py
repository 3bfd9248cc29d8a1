"""Digests and versions: what tells two results apart."""

from __future__ import annotations

import numpy as np

from bvat import __version__
from bvat.training.provenance import digest, package_versions


def test_a_digest_depends_on_values_and_not_on_their_order() -> None:
    assert digest({"a": 1, "b": [2.0]}) == digest({"b": [2.0], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
    assert digest([], 10) == digest([])[:10]


def test_a_package_that_is_not_installed_has_no_version() -> None:
    found = package_versions(("numpy", "no-such-package"))
    assert list(found) == ["bvat", "python", "numpy", "no-such-package"]
    assert (found["bvat"], found["numpy"], found["no-such-package"]) == (__version__, np.__version__, None)
