from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from bvat.data import synthetic_graph
from bvat.data.checksums import read_sealed_json, write_sealed_json
from bvat.data.tensors import file_digest
from bvat.errors import DataError, SettingsError
from bvat.parts.batches import open_batches
from bvat.parts.folder import check_parts, part_file, read_about, read_part, whole_graph
from bvat.parts.join import join
from bvat.parts.parts import assign, blocks, cut, cut_share
from bvat.training.provenance import graph_fingerprint
from graph_helpers import random_graph
from rank_helpers import write


@pytest.mark.parametrize("by", ["order", "random", "metis"])
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_parts_have_every_node_once_and_fit_each_other(by, parts, tmp_path) -> None:
    if by == "metis":
        pytest.importorskip("pymetis")
    graph = random_graph()
    folder = write(graph, parts, tmp_path / "parts", by)
    about = check_parts(folder)
    assert about["parts"] == parts
    assert sum(row["nodes"] for row in about["table"]) == graph.num_nodes
    matrix = graph.propagation.to_dense()
    for number in range(parts):
        part, features, rest = read_part(folder, number, about)
        numbers = torch.cat([part.nodes, part.halo])
        for row, node in enumerate(part.nodes.tolist()):
            entries = slice(int(part.crow[row]), int(part.crow[row + 1]))
            columns = numbers[part.col[entries].long()]
            assert columns.tolist() == sorted(columns.tolist())  # the order of the whole matrix
            assert torch.equal(part.values[entries], matrix[node, columns])
            inside = bool((part.col[entries] < part.nodes.numel()).all())
            assert inside == (row < part.interior)
        assert torch.equal(features.to_dense(), graph.features.to_dense()[part.nodes])
        assert torch.equal(rest["labels"], graph.labels[part.nodes])


@pytest.mark.parametrize("dense", [False, True])
def test_the_whole_graph_can_be_put_together_again(dense, tmp_path) -> None:
    graph = random_graph(dense=dense)
    again = whole_graph(write(graph, 3, tmp_path / "parts", "random"))
    assert graph_fingerprint(again) == graph_fingerprint(graph)


def test_metis_cuts_fewer_edges_than_chance() -> None:
    pytest.importorskip("pymetis")
    graph = synthetic_graph(nodes=400, edges=1600, homophily=0.98, classes=4)
    shares = {by: cut_share(graph, assign(graph, 4, by)) for by in ("metis", "random")}  # type: ignore[arg-type]
    assert shares["metis"] < shares["random"] / 4


def test_halo_nodes_are_received_from_their_owners() -> None:
    graph = random_graph()
    owner = assign(graph, 3, "random")
    for number, part in enumerate(cut(graph.propagation, owner)):
        owners = owner[part.halo]
        assert torch.equal(owners, owners.sort()[0])
        assert torch.equal(torch.bincount(owners, minlength=3), part.receive_counts)
        assert int(part.send_counts[number]) == 0


def test_blocks_put_neighbours_close_in_memory() -> None:
    pytest.importorskip("pymetis")
    graph = synthetic_graph(nodes=4096, edges=20_000, seed=0)
    assert blocks(graph, "order") is None
    found = blocks(graph, "metis")
    assert found.unique().tolist() == [0, 1, 2, 3]
    owner = assign(graph, 2, "order")
    for part in cut(graph.propagation, owner, found):
        inside, rim = found[part.nodes[: part.interior]], found[part.nodes[part.interior :]]
        assert torch.equal(inside, inside.sort()[0])
        assert torch.equal(rim, rim.sort()[0])


def test_damage_is_noticed(tmp_path) -> None:
    folder = write(random_graph(), 2, tmp_path / "parts")
    path = folder / part_file(1)
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="checksum is wrong"):
        check_parts(folder)
    (folder / "partition.json").write_text("{}")
    with pytest.raises(DataError, match="another version"):
        read_about(folder)


def resealed(folder: Path, name: str, change: Callable[[dict], object]) -> None:
    """Change the tensors of a file as somebody would who also writes the checksums."""
    path = folder / name
    with safe_open(path, framework="pt") as file:
        tensors, metadata = {key: file.get_tensor(key).clone() for key in file.keys()}, file.metadata()  # noqa: SIM118
    change(tensors)
    save_file(tensors, path, metadata)
    about = read_sealed_json(folder / "partition.json")
    about["files"][name] = file_digest(path)
    write_sealed_json(folder / "partition.json", about)


def entry(name: str, value: float) -> Callable[[dict], object]:
    def change(tensors: dict) -> None:
        tensors[name].view(-1)[1] = value

    return change


HOSTILE: dict[str, tuple[Callable[[dict], object], str]] = {
    "col beyond": (entry("col", 10**6), "points at column 1000000"),
    "col negative": (entry("col", -1), "points at column -1"),
    "crow falls": (entry("crow", 10**6), "row pointers are not ascending"),
    "crow of another type": (lambda t: t.update(crow=t["crow"].long()), "not int32"),
    "values missing": (lambda t: t.pop("values"), "it has no 'values'"),
    "values infinite": (entry("values", float("inf")), "NaN or infinite"),
    "features.col": (entry("features.col", 2**30), "points at column"),
    "features.col falls": (lambda t: t["features.col"].zero_(), "not ascending"),
    "features.values": (entry("features.values", float("nan")), "NaN"),
    "labels": (entry("labels", 99), "labels has 99, outside -1 to"),
    "labels too short": (lambda t: t.update(labels=t["labels"][1:].clone()), "row pointers|labels"),
    "send": (entry("send", 10**9), "send has 1000000000"),
    "send_counts": (entry("send_counts", 10**9), "send_counts has"),
    "receive_counts": (lambda t: t["receive_counts"].zero_(), "receive_counts do not sum"),
    "nodes": (entry("nodes", 10**9), "nodes has 1000000000"),
    "nodes twice": (lambda t: t["nodes"].zero_(), "twice"),
    "halo": (entry("halo", -5), "halo has -5"),
    "train": (entry("train", 10**9), "train split names node"),
    "test missing": (lambda t: t.pop("test"), "it has no 'test'"),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_hostile_content_is_refused_wherever_parts_are_read(how, tmp_path) -> None:
    change, message = HOSTILE[how]
    folder = write(random_graph(), 2, tmp_path / "parts", "random")
    check_parts(folder)
    resealed(folder, part_file(0), change)
    reads = (check_parts, whole_graph, lambda folder: open_batches(folder, 1))
    for read in (*reads, lambda folder: read_part(folder, 0, read_about(folder))):
        with pytest.raises(DataError, match=message):
            read(folder)


def test_splits_and_names_are_checked_too(tmp_path) -> None:
    graph = replace(random_graph(), node_names=tuple(f"n{k}" for k in range(40)))
    folder = write(graph, 2, tmp_path / "parts")
    assert whole_graph(folder).node_names == graph.node_names
    (folder / "names.json").write_text("[]")
    with pytest.raises(DataError, match=r"names\.json"):
        check_parts(folder)
    (folder / "names.json").unlink()
    resealed(folder, "splits.safetensors", lambda t: t.update(train=t["train"][1:].clone()))
    with pytest.raises(DataError, match="other train nodes"):
        check_parts(folder)


def test_nothing_is_overwritten_and_nothing_half_written_is_left(tmp_path, monkeypatch) -> None:
    graph = random_graph()
    folder = write(graph, 2, tmp_path / "parts")
    with pytest.raises(SettingsError, match="not empty"):
        write(graph, 2, folder)

    def full(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("bvat.parts.folder.save_file", full)
    with pytest.raises(OSError, match="disk full"):
        write(graph, 2, tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["parts"]


@pytest.mark.parametrize(("parts", "by"), [(0, "order"), (41, "order"), (2, "size")])
def test_impossible_cuts_are_refused(parts, by) -> None:
    with pytest.raises(SettingsError):
        assign(random_graph(), parts, by)


def test_the_number_of_processes_must_be_that_of_the_parts(tmp_path: Path) -> None:
    folder = write(random_graph(), 2, tmp_path / "parts")
    with pytest.raises(SettingsError, match="--nproc-per-node 2"):
        join(folder)
