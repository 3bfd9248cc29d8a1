"""Training over two ranks of this machine with torchrun."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bvat.data import save_graph, synthetic_graph
from bvat.data.checksums import read_sealed_json, write_sealed_json
from cli_helpers import bvat
from graph_helpers import random_graph
from rank_helpers import run_ranks, write
from rank_runs import compare_bits, torchrun

OPTIONS = ["--method", "obvat", "--epochs", "4", "--pretrain", "0", "--confidence", "0", "--beta", "1"]
LOOPBACK = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "seed-0" / "weights.safetensors")


@pytest.mark.slow
def test_two_ranks_train_as_one_and_the_run_can_be_used(tmp_path, capsys) -> None:
    graph = synthetic_graph(nodes=120, edges=400, features=40)
    found = []
    for parts in (1, 2):
        folder, run = write(graph, parts, tmp_path / f"parts-{parts}", "random"), tmp_path / f"run-{parts}"
        command = [str(folder), *OPTIONS, "--out", str(run), "--json"]
        if parts == 1:
            assert run_ranks([command], size=1) == [(0, [])]
        else:
            done = torchrun(parts, "-m", "bvat", "train", *command, env=LOOPBACK, timeout=300)
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["epochs"] == 4  # one rank prints
        found.append(weights_of(run))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    assert (tmp_path / "run-2" / "report.html").is_file()
    command = ["predict", str(tmp_path / "run-2"), "--out", str(tmp_path / "predictions.csv")]
    code, out, _ = bvat(command, capsys)
    assert code == 0
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 121
    assert "120 nodes" in out


@pytest.mark.slow
def test_two_agents_that_meet_train_as_one_rank(tmp_path) -> None:
    """As on two nodes of a cluster: each agent of torchrun starts one rank, and they find each other."""
    graph, command = synthetic_graph(nodes=120, edges=400, features=40), [*OPTIONS, "--json", "--out"]
    alone, together = tmp_path / "alone", tmp_path / "together"
    one, two = (write(graph, parts, tmp_path / f"parts-{parts}", "random") for parts in (1, 2))
    assert run_ranks([[str(one), *command, str(alone)]], size=1) == [(0, [])]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    agent = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    agent += ["--rdzv-id", "7", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}"]
    agent += ["--local-addr", "127.0.0.1", "-m", "bvat", "train", str(two), *command, str(together)]
    streams = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    agents = [subprocess.Popen(agent, env=LOOPBACK, **streams) for _ in range(2)]
    answers = [each.communicate(timeout=300) for each in agents]
    assert [each.returncode for each in agents] == [0, 0], answers
    assert sum(bool(out) for out, _ in answers) == 1  # one of the ranks prints
    found = [weights_of(run) for run in (alone, together)]
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


@pytest.mark.slow
def test_every_method_has_the_same_bits_on_three_ranks() -> None:
    graph = random_graph(nodes=60, edges=120)
    plain = {"pretrain": 0, "ramp": 0, "beta": 1.0, "confidence": 0.0}
    runs = {method: ("", method, 3, plain) for method in ("none", "random", "vat", "sbvat", "obvat")}
    runs["appnp"] = ("", "vat", 2, {**plain, "model": "appnp"})
    runs["sage"] = ("", "vat", 2, {**plain, "model": "sage"})
    for name, answers in compare_bits(graph, runs, (1, 3), "random").items():
        assert answers["3"]["same_weights"], name
        assert answers["3"]["same_predictions"], name


@pytest.mark.slow
def test_errors_of_a_rank_are_one_sentence(tmp_path) -> None:
    folder = write(random_graph(), 2, tmp_path / "parts")
    path = folder / "part-1" / "part.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    command = [str(folder), *OPTIONS, "--out", str(tmp_path / "run"), "--rank-timeout", "5"]
    _, (code, sentences) = run_ranks([command, command])
    assert code == 2
    (sentence,) = sentences
    assert sentence.startswith("bvat: rank 1: ")
    assert "checksum is wrong" in sentence


def test_what_does_not_run_over_ranks_says_so(tmp_path, capsys) -> None:
    folder = write(random_graph(), 2, tmp_path / "parts")
    for arguments, message in (
        (["--method", "none", "--model", "gat"], "gat does not run over several ranks"),
        (["--method", "auto"], "name a method"),
        ([], "name a method"),
        (["--method", "none"], "--nproc-per-node 2"),
    ):
        code, _, err = bvat(["train", str(folder), *arguments, "--out", str(tmp_path / "run")], capsys)
        assert code == 2
        assert message in err


def test_partition_prints_a_table_and_checks(tmp_path, capsys) -> None:
    save_graph(random_graph(), tmp_path / "graph.npz")
    out = tmp_path / "parts"
    for arguments, printed in (
        ([str(tmp_path / "graph.npz"), "--parts", "3", "--by", "order", "--out", str(out)], "in 3 parts"),
        ([str(out), "--check"], "edges are cut (by order)"),
        ([str(out), "--check", "--json"], '"parts": 3'),
    ):
        code, said, _ = bvat(["partition", *arguments], capsys)
        assert code == 0
        assert printed in said
    for arguments in (["graph.npz"], [str(tmp_path), "--check"]):
        assert bvat(["partition", *arguments], capsys)[0] == 2


@pytest.mark.slow
def test_a_missing_rank_ends_the_others_in_time(tmp_path) -> None:
    folder = write(random_graph(), 2, tmp_path / "parts")
    [(code, sentences)] = run_ranks(
        [[str(folder), *OPTIONS, "--out", str(tmp_path / "run"), "--rank-timeout", "3"]]
    )
    assert code == 2
    assert len(sentences) == 1
    assert "bvat: rank 0: another rank" in sentences[0]


@pytest.mark.slow
def test_torchrun_needs_a_folder_of_parts(tmp_path) -> None:
    save_graph(random_graph(), tmp_path / "graph.npz")
    options = ["--method", "none", "--epochs", "2", "--out", str(tmp_path / "run")]
    command = [str(tmp_path / "graph.npz"), *options]
    for code, sentences in run_ranks([command, command]):
        assert code == 2
        assert "torchrun started 2 processes, and" in sentences[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("labels", "graph is "),
        ("cut", "cut is "),
        ("number of parts", "number of parts is 2 on rank 0 and 3 on rank 1"),
        ("settings", "hidden is 64 on rank 0 and 8 on rank 1"),
        ("seeds", "seeds is 1 on rank 0 and 2 on rank 1"),
        ("classes", "description of the graph is "),
    ],
)
def test_ranks_that_see_something_else_do_not_train_together(other, said, tmp_path) -> None:
    graph = random_graph()
    folder = write(graph, 2, tmp_path / "parts", "random")
    elsewhere, more = folder, []
    if other == "labels":
        changed = (graph.labels + 1) % graph.num_classes
        elsewhere = write(replace(graph, labels=changed), 2, tmp_path / "other", "random")
    elif other in ("cut", "number of parts"):
        elsewhere = write(graph, 2 if other == "cut" else 3, tmp_path / "other", "order")
    elif other == "classes":
        elsewhere = Path(shutil.copytree(folder, tmp_path / "other"))
        about = read_sealed_json(elsewhere / "partition.json")
        write_sealed_json(elsewhere / "partition.json", {**about, "classes": [*about["classes"], "more"]})
    else:
        more = {"settings": ["--hidden", "8"], "seeds": ["--seeds", "2"]}[other]
    run = ["--out", str(tmp_path / "run"), "--rank-timeout", "60"]
    answers = run_ranks([[str(folder), *OPTIONS, *run], [str(elsewhere), *OPTIONS, *run, *more]])
    for rank, (code, sentences) in enumerate(answers):
        assert code == 2
        assert len(sentences) == 1
        assert sentences[0].startswith(f"bvat: rank {rank}: the ranks do not train the same: {said}")
        assert "on rank 0 and" in sentences[0]
        assert "on rank 1;" in sentences[0]
    assert not (tmp_path / "run").exists()
