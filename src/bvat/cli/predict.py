"""``bvat predict`` and ``bvat export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from bvat.cli.common import SEED, Calibrate, Json, Models, RunArgument, print_json
from bvat.errors import printable


def predict(
    run: RunArgument,
    out: Annotated[Path, Option(help="CSV file to write", show_default=False)],
    graph: Annotated[
        str | None, Option(help="another graph with the same features (default: the graph of the run)")
    ] = None,
    seed: Annotated[
        int | None, Option(help="use the model of one seed (default: the mean of all seeds)", **SEED)
    ] = None,
    coverage: Annotated[
        float | None, Option(help="also write sets of classes that hold the true one this often, such as 0.9")
    ] = None,
    per_class: Annotated[
        bool, Option(help="let the sets cover every class, not only all nodes: they are larger")
    ] = True,
    calibrate: Calibrate = True,
    model: Models = None,
    as_json: Json = False,
) -> None:
    """Write the predicted class of every node, its confidence, and the probability of each class.

    The columns are id, predicted, confidence (the largest probability) and
    p_CLASS for each class. Without --graph, the training graph is predicted, as
    stored with the run. With --graph, a changed or new graph is predicted; its
    features are made in the same way, and it needs no labels. Where labels are
    known, accuracy and macro F1 are printed: of the test nodes, and with --graph
    of all nodes with a label that the model was not trained on. With --coverage
    0.9 the column set has the classes that cannot be excluded: it holds the true
    class of nine nodes out of ten, of each class unless --no-per-class is given.
    A run with a model of your own needs --model module:Class again. If nodes have
    several labels, predicted has those with a probability above 0.5, separated
    by |, confidence is that of the least certain one, and a node counts as right
    if all its labels are.

    Examples:

      bvat predict runs/papers-obvat --out predictions.csv

      bvat predict runs/papers-obvat --graph papers-new --out predictions.csv

      bvat predict runs/papers-auto --coverage 0.9 --out predictions.csv
    """
    from bvat.inference.runs import open_run
    from bvat.inference.tables import check_writable, predictions_csv, write_text
    from bvat.trust.conformal import prediction_sets
    from bvat.trust.held_out import held_out

    check_writable(out)
    trained = open_run(run, model or ())
    nodes = trained.graph(graph)
    classifier = trained.classifier(nodes, seed, calibrate=calibrate)
    probabilities = classifier.probabilities(nodes)
    sets = None
    if coverage is not None:  # both sides are calibrated
        p = probabilities if calibrate else trained.classifier(nodes, seed).probabilities(nodes)
        held = held_out(trained)
        sets = prediction_sets(held, p.cpu().numpy(), coverage, trained.name, per_class=per_class)
    member = None if sets is None else sets.member
    write_text(out, predictions_csv(nodes, classifier.class_names, probabilities, classifier.targets, member))
    scores = _scores(trained, classifier, nodes, probabilities, new_graph=graph is not None)
    if as_json:
        about = {"run": trained.name, "graph": nodes.name, "nodes": nodes.num_nodes, "out": str(out)}
        seeds = [seed] if seed is not None else list(trained.seeds)
        print_json({**about, "seeds": seeds, "scores": scores, "sets": sets and sets.about})
        return
    count = len(classifier.models)
    models = "one model" if count == 1 else f"the mean of {count} models"
    first = f"{out}: {nodes.num_nodes} nodes of {nodes.name}, predicted by {models}"
    accuracy = _accuracy(scores, int(nodes.labelled.sum()), new_graph=graph is not None)
    for line in (first, accuracy, sets.text if sets is not None else ""):
        if line:
            typer.echo(printable(line))


def _scores(
    trained: Any, classifier: Any, nodes: Any, probabilities: Any, *, new_graph: bool
) -> dict[str, Any] | None:
    """Return the scores on nodes that are new to the model, and how many of the others have a label."""
    import torch

    seen = trained.trained_on(nodes) if new_graph else None
    measured = torch.arange(nodes.num_nodes) if new_graph else nodes.test
    found = classifier.scores(nodes, probabilities, measured if seen is None else measured[~seen])
    if found is None:
        return None
    of = "nodes with a label" if new_graph else "test nodes"
    return {**found, "of": of, "trained_on": None if seen is None else int((seen & nodes.labelled).sum())}


def _accuracy(scores: dict[str, Any] | None, labelled: int, *, new_graph: bool) -> str:
    """Say how accurate the predictions are, or why that is unknown; nothing where there are no labels."""
    from bvat.training.statistics import accuracy_text

    if scores is None and not new_graph:
        return "no accuracy: no test nodes were held out"
    if scores is None:
        return f"no accuracy: the model was trained on all {labelled:,} nodes with a label" * bool(labelled)
    seen = ", all new to the model"
    if scores["trained_on"] is None:
        seen = "; some of them may be nodes that the model was trained on: there are no ids to tell them by"
    elif scores["trained_on"]:
        seen = f"; {scores['trained_on']:,} nodes that the model was trained on do not count"
    accuracy = accuracy_text(scores["accuracy"], scores["nodes"])
    micro = f", micro F1 {scores['micro_f1']:.2f} %" if "micro_f1" in scores else ""
    counted = f"{scores['nodes']:,} {scores['of']}{seen * new_graph}"
    return f"accuracy {accuracy}{micro}, macro F1 {scores['macro_f1']:.2f} % on {counted}"


def export(
    run: RunArgument,
    out: Annotated[Path, Option(help="file to write, NAME.safetensors", show_default=False)],
    seed: Annotated[
        int | None, Option(help="export the model of one seed (default: all, averaged)", **SEED)
    ] = None,
    calibrate: Calibrate = True,
    model: Models = None,
    as_json: Json = False,
) -> None:
    """Export a trained model with its preprocessing for programs that have torch but not bvat.

    NAME.safetensors holds numbers and text only, and NAME.py beside it is a
    short program in plain torch that reads it. The model takes raw features and
    edges and returns the probability of each class. Before anything is written,
    its probabilities are compared with bvat's on the graph of the run.

    Examples:

      bvat export runs/papers-vat --out exported/model.safetensors

      bvat export runs/papers-vat --seed 0 --out model.safetensors
    """
    from bvat.inference.export import exported, write_export
    from bvat.inference.runs import open_run

    trained = open_run(run, model or ())
    graph = trained.graph()
    plain, error = exported(trained.classifier(graph, seed, calibrate=calibrate), graph)
    files = [str(path) for path in write_export(plain, out)]
    if as_json:
        print_json({"run": trained.name, "files": files, "difference": error, **plain.about})
    else:
        typer.echo(printable(f"{', '.join(files)}: probabilities agree with bvat's to {error:.1g}"))
