"""``bvat export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bvat.cli.common import SEED, Json, RunArgument, print_json
from bvat.errors import printable


def export(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="file to write: .safetensors or .pt2", show_default=False)],
    seed: Annotated[
        int | None, typer.Option(help="export the model of one seed (default: all, averaged)", **SEED)
    ] = None,
    as_json: Json = False,
) -> None:
    """Export a trained model with its preprocessing for programs that have torch but not bvat.

    NAME.safetensors holds numbers and text only, and NAME.py beside it is a
    short program in plain torch that reads it. NAME.pt2 is one file for
    torch.export.load, for the same or a newer version of torch; load such files
    only from people you trust. Both take raw features and edges and return the
    probability of each class. Before anything is written, their probabilities
    are compared with bvat's on the graph of the run.

    Examples:

      bvat export runs/papers-vat --out exported/model.safetensors

      bvat export runs/papers-vat --seed 0 --out model.pt2
    """
    from bvat.inference.export import exported, write_export
    from bvat.inference.runs import open_run

    trained = open_run(run)
    graph = trained.graph()
    plain, error = exported(trained.classifier(graph, seed), graph)
    files = [str(path) for path in write_export(plain, out)]
    if as_json:
        print_json({"run": trained.name, "files": files, "difference": error, **plain.about})
    else:
        typer.echo(printable(f"{', '.join(files)}: probabilities agree with bvat's to {error:.1g}"))
