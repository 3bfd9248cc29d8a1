"""``bvat partition``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from bvat.cli.common import (
    SEED,
    Json,
    between,
    messages,
    print_json,
    print_notes,
    print_table,
    read_graph,
    with_graph_options,
)
from bvat.errors import SettingsError


@with_graph_options
def partition(
    graph: Annotated[
        str,
        Argument(help="a data set or a path to a graph; with --check a folder of parts", show_default=False),
    ],
    parts: Annotated[
        int, Option(help="number of parts, one per process", callback=between(1, 65536), metavar="N")
    ] = 2,
    out: Annotated[Path | None, Option(help="folder to write", show_default=False)] = None,
    by: Annotated[
        str | None,
        Option(
            help="metis (cuts few edges; the default), random or order (the default with --stream)",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, Option(help="seed of the cut", **SEED)] = 0,
    check: Annotated[bool, Option("--check", help="verify a folder of parts instead of writing one")] = False,
    stream: Annotated[
        bool, Option("--stream", help="read a folder of Parquet files without holding its edges in memory")
    ] = False,
    as_json: Json = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Cut a graph into parts for training over several processes.

    Each part has the rows of its own nodes and knows which rows it exchanges with
    the others. Train on them with torchrun, one process per part. The results do
    not depend on the number of parts or on how the graph is cut, only the time
    and memory do. METIS needs the extra named distributed. With --stream, nodes.parquet
    and edges.parquet may be larger than memory; temporary files lie beside the
    folder that is written.

    Examples:

      bvat partition my-graph/ --parts 4 --out parts/

      torchrun --nproc-per-node 4 -m bvat train parts/ --method obvat

      bvat partition large/ --stream --parts 8 --out parts/

      bvat partition parts/ --check
    """
    from bvat.parts.folder import check_parts, is_partition

    if check:
        if not is_partition(graph):
            raise SettingsError(f"{graph} is not a folder of parts: give what bvat partition wrote")
        about = check_parts(Path(graph))
    elif out is None:
        raise SettingsError("there is no folder to write the parts to: give one with --out")
    elif stream:
        about = _write_streamed(Path(graph), reading, parts, out, by or "order", seed)
    else:
        about = _write(read_graph(graph, reading | {"edge_attr": False}), parts, out, by or "metis", seed)
    if as_json:
        print_json({name: value for name, value in about.items() if name != "files"})
    else:
        _show(about, Path(graph) if check or out is None else out)


def _write_streamed(
    folder: Path, reading: dict[str, Any], parts: int, out: Path, by: str, seed: int
) -> dict[str, Any]:
    from bvat.data.readers.streamed import STAGES, scratch_folder, stream_folder
    from bvat.data.splits import ReadOptions
    from bvat.parts.folder import check_free
    from bvat.store.progress import ProgressDisplay

    if by == "metis":
        raise SettingsError("METIS needs the whole graph in memory: with --stream use --by order or random")
    check_free(out)
    sizes = {**STAGES, "parts": 3.0}
    title = f"cutting {folder}"
    with scratch_folder(out) as scratch, ProgressDisplay(title, sizes, messages(), line_every=60) as bar:
        graph = stream_folder(
            folder,
            scratch,
            ReadOptions(**reading),
            lambda stage, share: bar.update(stage, share * sizes[stage]),
        )
        print_notes(graph.notes)
        return _write(graph, parts, out, by, seed, lambda done: bar.update("parts", done / parts * 3))


def _write(
    graph: Any, parts: int, out: Path, by: Any, seed: int, tell: Callable[[int], object] = lambda part: None
) -> dict[str, Any]:
    from bvat.parts.folder import write_parts
    from bvat.parts.parts import assign, blocks, cut_share
    from bvat.training.provenance import graph_fingerprint

    if graph.edge_attr is not None:
        print_notes(["the edge attributes are left out: no model that is trained on parts reads them"])
        graph = replace(graph, edge_attr=None)
    owner = assign(graph, parts, by, seed)
    how = {"by": by, "seed": seed, "cut": cut_share(graph, owner)}
    rank = blocks(graph, by)
    fingerprint = graph_fingerprint(graph)
    return write_parts(graph, owner, out, fingerprint=fingerprint, how=how, rank=rank, tell=tell)


def _show(about: dict[str, Any], folder: Path) -> None:
    rows = []
    for number, row in enumerate(about["table"]):
        counts = [f"{row[name]:,}" for name in ("nodes", "edges", "halo")]
        shares = [f"{100 * row[name] / max(1, row['nodes']):.1f} %" for name in ("halo", "interior")]
        rows.append((str(number), *counts, *shares, f"{row['bytes'] / 2**20:.1f} MiB"))
    header = ("part", "nodes", "entries of Â", "halo", "halo share", "interior", "data")
    print_table(f"{about['name']} in {about['parts']} parts", header, rows)
    typer.echo(f"{100 * about['cut']:.2f} % of {about['edges']:,} edges are cut (by {about['by']}).")
    typer.echo(f"folder of parts: {folder}")
