"""``bvat predict``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bvat.cli.options import SEED
from bvat.errors import printable

RunArgument = Annotated[str, typer.Argument(help="run folder that bvat train wrote", show_default=False)]
SpreadsheetSafe = Annotated[
    bool,
    typer.Option("--spreadsheet-safe", help="put ' before names that a spreadsheet takes for a formula"),
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")]


def predict(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="CSV file to write", show_default=False)],
    graph: Annotated[
        str | None, typer.Option(help="another graph with the same features (default: the graph of the run)")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="use the model of one seed (default: the mean of all seeds)", **SEED)
    ] = None,
    spreadsheet_safe: SpreadsheetSafe = False,
    as_json: Json = False,
) -> None:
    """Write the predicted class of every node, its confidence, and the probability of each class.

    The columns are id, predicted, confidence (the largest probability) and
    p_CLASS for each class. Without --graph, the training graph is predicted, as
    stored with the run. With --graph, a changed or new graph is predicted; its
    features are made in the same way, and it needs no labels. Where labels are
    known, accuracy and macro F1 are printed: of the test nodes, and with --graph
    of all nodes with a label.

    Examples:

      bvat predict runs/papers-obvat --out predictions.csv

      bvat predict runs/papers-obvat --graph papers-new --out predictions.csv
    """
    from bvat.inference.runs import open_run
    from bvat.inference.tables import check_writable, predictions_csv, write_text

    check_writable(out)
    trained = open_run(run)
    nodes = trained.graph(graph)
    classifier = trained.classifier(nodes, seed)
    probabilities = classifier.probabilities(nodes)
    table = predictions_csv(nodes, classifier.class_names, probabilities, safe=spreadsheet_safe)
    write_text(out, table)
    scores = classifier.scores(nodes, probabilities, all_labels=graph is not None)
    if as_json:
        about = {"run": trained.name, "graph": nodes.name, "nodes": nodes.num_nodes, "out": str(out)}
        seeds = [seed] if seed is not None else list(trained.seeds)
        typer.echo(json.dumps({**about, "seeds": seeds, "scores": scores}))
    else:
        count = len(classifier.models)
        models = "one model" if count == 1 else f"the mean of {count} models"
        typer.echo(printable(f"{out}: {nodes.num_nodes} nodes of {nodes.name}, predicted by {models}"))
        if scores is not None:
            measured = f"accuracy {scores['accuracy']:.2f} %, macro F1 {scores['macro_f1']:.2f} %"
            typer.echo(f"{measured} on {scores['nodes']:,} {scores['of']}")
