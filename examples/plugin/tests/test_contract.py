"""Both keep bvat's contract: ``pytest`` in this folder, after ``pip install``."""

from bvat.testing import check_method, check_model


def test_the_method() -> None:
    check_method("several")


def test_the_model() -> None:
    check_model("jumping")
