"""``bvat partition --stream`` writes what ``bvat partition`` writes."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from bvat.data.readers import spill
from bvat.parts.folder import check_parts
from cli_helpers import bvat
from parquet_helpers import columns, write_parquet
from rank_helpers import run_ranks


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small graphs take several batches, ranges and blocks."""
    monkeypatch.setattr(spill, "ENTRIES", 64)
    monkeypatch.setattr("bvat.data.readers.features._CELLS", 64)
    monkeypatch.setattr("bvat.data.checksums._PIECE", 16)


def content(folder: Path) -> dict[str, Any]:
    """Return everything in a folder of parts; the order of the metadata changes the bytes of its files."""
    found: dict[str, Any] = {"names": (folder / "names.json").read_bytes()}
    about = json.loads((folder / "partition.json").read_text("utf-8"))
    found["about"] = {name: value for name, value in about.items() if name not in ("files", "checksum")}
    for path in folder.rglob("*.safetensors"):
        with safe_open(path, "np") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            name = str(path.relative_to(folder))
            found[name] = file.metadata()
        found |= {f"{name} {key}": (v.dtype, v.shape, v.tobytes()) for key, v in tensors.items()}
    return found


def cut_both(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[Path, Path]:
    """Cut a graph with and without --stream, which gives the same."""
    outs = folder.with_name("held"), folder.with_name("streamed")
    for out, more in zip(outs, ([], ["--stream"]), strict=True):
        command = ["partition", str(folder), "--parts", "3", "--out", str(out), *options, *more]
        code, _, err = bvat(command, capsys)
        assert code == 0, err
    assert {path.name for path in folder.parent.iterdir()} == {folder.name, "held", "streamed"}
    assert content(outs[0]) == content(outs[1])
    return outs


GRAPHS: dict[str, dict[str, Any]] = {
    "weighted": {},
    "text": {"text": True},
    "ids with gaps": {"gap": 1000},
    "one column": {"features": 1},
    "many columns": {"features": 20},
    "edges alone": {"features": 0},
}


@pytest.mark.parametrize("by", ["order", "random"])
@pytest.mark.parametrize("kind", GRAPHS)
def test_streamed_parts_are_those_of_the_graph_in_memory(kind, by, tmp_path, capsys) -> None:
    folder = write_parquet(tmp_path / "graph", *columns(**GRAPHS[kind]))
    _, streamed = cut_both(folder, capsys, "--by", by, "--seed", "3")
    check_parts(streamed)
    assert not content(streamed)["about"]["repairs"].keys() - {
        "self_loops", "duplicate_edges", "one_way_edges", "unequal_weights"
    }  # fmt: skip
    assert min(content(streamed)["about"]["repairs"].values()) > 0


def test_edges_without_weights(tmp_path, capsys) -> None:
    nodes, edges = columns()
    del edges["weight"]
    edges["since"] = np.arange(len(edges["source"]))
    _, streamed = cut_both(write_parquet(tmp_path / "graph", nodes, edges), capsys, "--by", "order")
    assert any("since" in note for note in content(streamed)["about"]["notes"])


def test_no_edges_and_a_node_with_most_of_them(tmp_path, capsys) -> None:
    nodes, edges = columns()
    none = {name: values[:0] for name, values in edges.items()}
    hub = {"source": np.repeat(nodes["id"][4], 90), "target": nodes["id"]}
    for name, some in (("none", none), ("hub", hub)):
        (tmp_path / name).mkdir()
        cut_both(write_parquet(tmp_path / name / "graph", nodes, some), capsys, "--by", "order")


@pytest.mark.parametrize("precision", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["npy", "npz"])
@pytest.mark.parametrize("features", [0, 2])
def test_a_matrix_of_features_alone_and_beside_columns(features, kind, precision, tmp_path, capsys) -> None:
    folder = write_parquet(tmp_path / "graph", *columns(features=features))
    matrix = np.random.default_rng(0).normal(size=(90, 7)).astype(precision)
    if kind == "npy":
        np.save(folder / "features.npy", matrix)
    else:
        sp.save_npz(folder / "features.npz", sp.csr_array(matrix * (matrix > 1)))
    cut_both(folder, capsys, "--by", "order")


def test_sparse_columns_ids_and_a_split(tmp_path, capsys) -> None:
    nodes, edges = columns()
    rng = np.random.default_rng(1)
    nodes["x0"] = nodes["x1"] = nodes["x2"] = (rng.random(90) < 0.2) * 1.0
    nodes["user_id"] = np.arange(90)
    nodes["split"] = ["train" if label and k % 2 else "" for k, label in enumerate(nodes["label"])]
    _, streamed = cut_both(write_parquet(tmp_path / "graph", nodes, edges), capsys, "--by", "order")
    about = content(streamed)["about"]
    assert about["sparse"]
    assert about["features"] == 3
    assert any("user_id" in note for note in about["notes"])


def test_options_for_the_split_are_used(tmp_path, capsys) -> None:
    folder = write_parquet(tmp_path / "graph", *columns())
    _, streamed = cut_both(folder, capsys, "--by", "order", "--val", "9", "--test", "8")
    assert len(load_file(streamed / "splits.safetensors")["val"]) == 9


@pytest.mark.slow
def test_training_on_streamed_parts_gives_the_same_bits(tmp_path, capsys) -> None:
    folder = write_parquet(tmp_path / "graph", *columns())
    weights = []
    for parts in cut_both(folder, capsys, "--by", "random"):
        run = tmp_path / f"run-{parts.name}"
        command = [str(parts), "--method", "obvat", "--epochs", "3", "--out", str(run), "--json"]
        assert run_ranks([command] * 3, size=3) == [(0, [])] * 3
        weights.append(load_file(run / "seed-0" / "weights.safetensors"))
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize("place", ["bvat.data.readers.spill._append", "bvat.parts.folder._save"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_nothing_is_left_after_a_full_disk_or_ctrl_c(place, error, tmp_path, capsys, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(place, fail)
    folder = write_parquet(tmp_path / "graph", *columns())
    code, _, err = bvat(["partition", str(folder), "--out", str(tmp_path / "parts"), "--stream"], capsys)
    assert code == (130 if isinstance(error, KeyboardInterrupt) else 2)
    if code == 2:
        assert "(No space left on device): free some space, or use another folder" in err
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


def test_a_full_disk_is_an_error_of_the_system_for_safetensors_too(tmp_path, capsys, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("bvat.parts.folder.save_file", fail)
    folder = write_parquet(tmp_path / "graph", *columns())
    code, _, err = bvat(["partition", str(folder), "--out", str(tmp_path / "parts"), "--stream"], capsys)
    assert code == 2
    assert "part-0/part.safetensors cannot be read or written (No space left on device)" in err


def test_what_cannot_be_streamed_is_refused_before_the_work(tmp_path, capsys) -> None:
    folder = write_parquet(tmp_path / "graph", *columns())
    command = ["partition", str(folder), "--stream", "--out", str(tmp_path / "parts")]
    for more, message in (
        (["--by", "metis"], "with --stream use --by order or random"),
        (["--text", "label"], "--stream does not read texts"),
        (["--out", str(folder)], "is not empty"),
    ):
        code, _, err = bvat([*command, *more], capsys)
        assert code == 2
        assert message in err
