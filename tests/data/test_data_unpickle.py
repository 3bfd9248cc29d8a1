from __future__ import annotations

import collections
import os
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from data_files import neighbours, python2_pickle

from bvat.data.unpickle import unpickle
from bvat.errors import DataError

ARRAYS = [
    np.arange(6, dtype=np.int32).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.array([1.5, -2.5], dtype=">f8"),
    np.array([True, False]),
    np.zeros((0, 3), dtype=np.float32),
    np.array(7, dtype=np.uint8),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_arrays(array: Any) -> None:
    read = unpickle(python2_pickle(array), "a")
    assert read.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(read, array)


def test_csr_matrices_and_graphs() -> None:
    matrix = sp.random_array((7, 5), density=0.4, rng=np.random.default_rng(0), format="csr")
    read = unpickle(python2_pickle(sp.csr_matrix(matrix)), "m")
    np.testing.assert_array_equal(read.toarray(), matrix.toarray())
    graph = unpickle(python2_pickle(neighbours({0: [1, 2], 1: []})), "g")
    assert type(graph) is dict
    assert graph == {0: [1, 2], 1: []}


class Gadget:
    """Pickles to a call of ``function``."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> Any:
        return self.call


def _with_global(module: str, name: str, *texts: str) -> bytes:
    """A protocol 0 pickle that calls module.name with text arguments."""
    arguments = "".join(f"V{text}\n" for text in texts)
    return f"c{module}\n{name}\n({arguments}tR.".encode()


@pytest.mark.parametrize("place", ["bare", "in a list", "in an object array", "as a dict's key"])
def test_a_malicious_pickle_runs_nothing(tmp_path: Path, place: str) -> None:
    mark = tmp_path / "mark"
    gadget: Any = Gadget(os.system, f"touch {mark}")
    wrapped = {
        "bare": gadget,
        "in a list": [1, gadget],
        "in an object array": np.array([gadget], dtype=object),
        "as a dict's key": {gadget: 1},
    }[place]
    content = python2_pickle(wrapped)
    with pytest.raises(
        DataError, match=r"evil\.pkl is refused because it contains (\w+\.system|an array of dtype object)"
    ):
        unpickle(content, "evil.pkl")
    assert not mark.exists()
    pickle.loads(content)  # noqa: S301 - the same bytes do harm in the usual reader
    assert mark.exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("builtins", "eval"),
        ("__builtin__", "eval"),
        ("builtins", "getattr"),
        ("builtins", "__import__"),
        ("os", "system"),
        ("posix", "system"),
        ("subprocess", "Popen"),
        ("numpy.testing._private.utils", "runstring"),
        ("numpy.f2py.crackfortran", "myeval"),
        ("numpy", "load"),
        ("numpy", "memmap"),
        ("numpy.core.multiarray", "fromfile"),
        ("numpy.core.multiarray", "_reconstruct.__globals__"),
        ("scipy.sparse.csr", "np.load"),
        ("scipy.sparse", "load_npz"),
        ("collections", "namedtuple"),
        ("functools", "partial"),
        ("copyreg", "_reconstructor"),
    ],
)
def test_names_that_are_not_on_the_list_are_refused(module: str, name: str) -> None:
    with pytest.raises(DataError, match="is refused because it contains"):
        unpickle(_with_global(module, name, "print(1)"), "evil")


def _csr_with(**changes: Any) -> bytes:
    matrix = sp.csr_matrix(np.eye(3))
    for name, value in changes.items():
        setattr(matrix, name, value)
    return python2_pickle(matrix)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(_csr_with(indices=np.array([0, 1, 2**30], dtype=np.int32)), id="column out of range"),
        pytest.param(_csr_with(indices=np.array([0, 1, -5], dtype=np.int32)), id="negative column"),
        pytest.param(_csr_with(indptr=np.array([0, 9, 2, 3], dtype=np.int32)), id="pointers not ascending"),
        pytest.param(
            _csr_with(
                data=np.zeros(0),
                indices=np.zeros(0, dtype=np.int32),
                indptr=np.array([0, 2**30, 5, 0], dtype=np.int32),
            ),
            id="pointers that return to 0, which scipy accepts",
        ),
        pytest.param(_csr_with(_shape=(3, 1)), id="shape too small"),
        pytest.param(_csr_with(_shape=(3, 2**62)), id="shape too large"),
        pytest.param(_csr_with(_shape=(3,)), id="shape of a vector"),
        pytest.param(python2_pickle(np.array(["a"])), id="text array"),
        pytest.param(python2_pickle(np.array([None])), id="object array"),
        pytest.param(python2_pickle(np.zeros(2, dtype="i4,f8")), id="record array"),
        pytest.param(
            python2_pickle(np.zeros(3)).replace(b"K\x03\x85", b"K\x04\x85"), id="shape and bytes differ"
        ),
        pytest.param(b"cnumpy\nndarray\n.", id="a type alone"),
        pytest.param(b"cnumpy\nndarray\n(Va\nV1\ndb.", id="state on a type"),
        pytest.param(b"c__builtin__\nlist\n(Va\nV1\ndb.", id="state on a builtin"),
        pytest.param(b"Pstored elsewhere\n.", id="persistent id"),
        pytest.param(b"(lp0\ng0\na.", id="a list that holds itself"),
        pytest.param(b"cscipy.sparse.csr\ncsr_matrix\n)\x81.", id="matrix without contents"),
        pytest.param(pickle.dumps(collections.OrderedDict(a=1)), id="ordered dict"),
        pytest.param(pickle.dumps({1, 2}, protocol=4), id="set"),
        pytest.param(b"", id="empty"),
        pytest.param(b"not a pickle at all", id="text"),
    ],
)
def test_what_is_not_plain_numbers_is_refused(content: bytes) -> None:
    with pytest.raises(DataError, match=r"get the original file|use the original file"):
        unpickle(content, "ind.cora.x")


def test_stand_ins_cannot_be_altered_by_a_pickle() -> None:
    before = unpickle(python2_pickle(np.arange(3)), "a")
    for target in (
        b"cnumpy\ndtype\n",
        b"cnumpy.core.multiarray\n_reconstruct\n",
        b"ccollections\ndefaultdict\n",
    ):
        with pytest.raises(DataError):
            unpickle(target + b"(Vbuild\nV1\ndb.", "evil")
    np.testing.assert_array_equal(unpickle(python2_pickle(np.arange(3)), "a"), before)


@pytest.mark.parametrize("value", [np.arange(4.0), neighbours({0: [1]}), sp.csr_matrix(np.eye(2))])
def test_a_cut_file_is_never_taken_for_a_whole_one(value: Any) -> None:
    content = python2_pickle(value)
    for length in range(len(content)):
        with pytest.raises(DataError):
            unpickle(content[:length], "cut")


def test_few_bytes_cannot_ask_for_much_memory_or_time() -> None:
    tracemalloc.start()
    try:
        for content in (
            b"Nr\xff\xff\xff\x0f.",  # a memo of 2 ** 28 entries
            b"\x96" + b"\x00" * 4 + b"\x01" + b"\x00" * 3 + b".",
            b"cbuiltins\nbytes\n(I99999999999\ntR.",
        ):
            with pytest.raises(DataError):
                unpickle(content, "a buffer of any length")
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
