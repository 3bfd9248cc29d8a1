"""Ranks for tests: a world of one rank in this process, and processes that are ranks of one run."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

import torch

from bvat.engine.ranks import RankEngine
from bvat.graph import Graph
from bvat.parts.folder import read_about, read_part, write_parts
from bvat.parts.part_graph import PartGraph, own_share, part_graph
from bvat.parts.parts import assign, cut
from bvat.training.provenance import graph_fingerprint


def one_part(graph: Graph) -> tuple[RankEngine, PartGraph]:
    """Return a world of one rank and the whole graph as its part."""
    world = RankEngine(0, 1, graph.num_nodes)
    part = next(cut(graph.propagation, torch.zeros(graph.num_nodes, dtype=torch.int64)))
    share = own_share(graph, part)
    features = share.pop("features")
    sizes = {"whole_nodes": graph.num_nodes, "whole_edges": graph.num_edges}
    about = {**share, **sizes, "class_names": graph.class_names, "fingerprint": graph_fingerprint(graph)}
    return world, part_graph(world, part, features, about)


def write(graph: Graph, parts: int, folder: Path, by: str = "order") -> Path:
    """Cut a graph into a folder."""
    owner = assign(graph, parts, by)  # type: ignore[arg-type]
    write_parts(graph, owner, folder, fingerprint=graph_fingerprint(graph), how={"by": by, "cut": 0.5})
    return folder


def _rank(arguments: Sequence[str], environment: dict[str, str], said: str) -> None:
    from bvat.cli.main import main

    os.environ.update(environment)
    for descriptor, name in ((1, os.devnull), (2, said)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), descriptor)
    sys.argv = ["bvat", "train", *arguments]
    main()


def run_ranks(ranks: Sequence[Sequence[str]], size: int = 2) -> list[tuple[int, list[str]]]:
    """Start ranks as machines of their own would, each with its own arguments; return codes and sentences.

    They are forked from a process that has imported everything, which saves seconds for each of them.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    shared |= {"GLOO_SOCKET_IFNAME": "lo", "TORCHELASTIC_RUN_ID": "test"}
    context = get_context("forkserver")
    context.set_forkserver_preload(["bvat.runs.parts", "torch.distributed"])
    with tempfile.TemporaryDirectory() as folder:
        said = [Path(folder) / f"{rank}" for rank in range(len(ranks))]
        started = [
            context.Process(target=_rank, args=(arguments, {**shared, "RANK": str(rank)}, str(said[rank])))
            for rank, arguments in enumerate(ranks)
        ]
        for process in started:
            process.start()
        for process in started:
            process.join(200)
        lines = [path.read_text("utf-8").splitlines() for path in said]
    sentences = [[line for line in each if line.startswith("bvat: ")] for each in lines]
    return [(process.exitcode or 0, each) for process, each in zip(started, sentences, strict=True)]


__all__ = ["one_part", "read_about", "read_part", "run_ranks", "write"]
