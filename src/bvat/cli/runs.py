"""``bvat runs``: list, show and compare run folders."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument

from bvat.baselines.table import BASELINES
from bvat.cli.common import Json, RunArgument, print_json, print_lines, print_notes, print_table
from bvat.errors import SettingsError, printable

app = typer.Typer(help="List, show and compare run folders.", no_args_is_help=True)


@app.command("list")
def list_runs(
    folder: Annotated[Path, Argument(help="folder that holds run folders")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List the runs in a folder and its subfolders, with their accuracies.

    Runs that bvat compare, reproduce and tune keep for themselves are left out.

    The accuracy is that of the test nodes; without any, of cross-validation (cv)
    or of the validation nodes (val); on few nodes with its 95 % interval.
    A seed whose files are damaged is named and left out: "2 of 3" seeds. A seed
    that is not finished is counted apart: "2 (+1)".

    Examples:

      bvat runs list

      bvat runs list experiments --json
    """
    from bvat.inference.records import find_runs

    runs, faults = find_runs(folder)
    rows = [run.summary() for run in runs]
    if as_json:
        print_json({"runs": rows, "faults": faults})
        return
    print_notes(faults)
    lines = []
    for row in rows:
        day = row["finished"] and f"{datetime.fromtimestamp(row['finished']):%Y-%m-%d}"
        names = _short(row["dataset"], 16), _short(_name(row), 18)
        lines.append((*names, _seeds(row), _accuracy(row), day, row["run"]))
    header = ("data set", "model", "seeds", "accuracy (%)", "finished", "run")
    print_lines(f"{len(rows)} run{'s' * (len(rows) != 1)} in {folder}", header, lines)


@app.command("show")
def show_run(run: RunArgument, as_json: Json = False) -> None:
    """Show the results of a run seed by seed, and the settings that differ from the defaults.

    Example:

      bvat runs show runs/cora-obvat
    """
    from bvat.inference.records import MEASURES, read_run
    from bvat.training.settings import Settings

    found = read_run(run)
    names = {name: found.settings[name] for name in ("method", "model") if name in found.settings}
    defaults = Settings(**names).as_dict()
    changed = [f"{name} {value}" for name, value in found.settings.items() if value != defaults.get(name)]
    summary = found.summary()
    if as_json:
        about = {"settings": found.settings, "faults": found.faults}
        print_json({**summary, **about, "results": list(found.results)})
        return
    print_notes(found.faults)
    rows = [_seed_row(result) for result in found.results]
    rows.append((f"all {_seeds(summary)}", *(spread(summary[name]) for name in MEASURES), "", ""))
    title = f"{_name(summary)} on {summary['dataset']}, bvat {summary['version']}"
    print_lines(title, ("seed", *MEASURES.values(), "kept epoch", "early stopping"), rows)
    typer.echo(printable(f"settings that differ from the defaults: {', '.join(changed) or 'none'}"))
    for text in _uncertain(summary):
        typer.echo(text)


def _seed_row(result: dict[str, Any]) -> tuple[Any, ...]:
    """Return the seed, its measures, the epoch that was kept, and why training stopped early."""
    from bvat.inference.records import MEASURES, measure_of

    values = [measure_of(result, name) for name in MEASURES]
    shown = [None if value is None else f"{value:.2f}" for value in values]
    kept = f"{measure_of(result, 'epoch') or 0:.0f} of {result.get('epochs')}"
    return result["seed"], *shown, kept, result.get("stopped") or None


@app.command("compare")
def compare_runs(
    runs: Annotated[list[str], Argument(help="two or more run folders; the first is the baseline")],
    as_json: Json = False,
) -> None:
    """Compare runs on the same graph and split with the first one, paired by seed.

    Differences are means over the seeds that both runs have, with 95 %
    intervals; a star marks an interval that excludes zero.

    Example:

      bvat runs compare runs/cora-gcn runs/cora-obvat runs/cora-vat
    """
    from bvat.inference.records import MEASURES, read_run
    from bvat.inference.records import compare_runs as compared

    if len(runs) < 2:
        raise SettingsError("a comparison needs at least two run folders: name another one")
    records = [read_run(path) for path in runs]
    found = compared(records)
    faults = [fault for record in records for fault in record.faults]
    if as_json:
        print_json({**found, "faults": faults})
        return
    print_notes(faults)
    base = found["base"]
    rows = [(_seeds(base), *(spread(base[name]) for name in MEASURES), base["run"])]
    for row in found["differences"]:
        rows.append((len(row["seeds"]), *(_difference(row[name]) for name in MEASURES), row["run"]))
    print_lines(f"differences to {base['run']}, in points", ("seeds", *MEASURES.values(), "run"), rows)
    for name, values in found["settings"].items():
        typer.echo(printable(f"{name}: {', '.join(str(value) for value in values)}"))
    if all(len(row["seeds"]) < 2 for row in found["differences"]):
        print_notes(["one seed has no interval: train several with bvat train --seeds 10"])


def show_summary(summary: dict[str, Any], folder: Path) -> None:
    from bvat.store.results import cross_validation_text, member_rows, score_texts
    from bvat.training.phases import stopping_text
    from bvat.tuning.variants import Variant

    name = Variant(summary["settings"]["model"], summary["method"]).title
    rows = {**score_texts(summary), "seeds": str(summary["seeds"])}
    if summary["method"] in BASELINES:
        rows["time per fit"] = f"{summary['epoch_ms'] / 1000:.2f} s"
    else:
        kept = "last" if summary["settings"]["select"] == "last" else "best"
        rows["epochs"] = f"{summary['epochs']} (weights of the {kept} one)"
        if summary["stopped"]:
            rows["early stopping"] = stopping_text(summary["stopped"], summary["seeds"])
        rows |= {"space": summary["space"], "time per epoch": f"{summary['epoch_ms']:.2f} ms"}
    rows["peak memory"] = f"{summary['peak_rss_mb']:.0f} MiB"
    rows["validation labels"] = printable(summary["validation"])
    print_table(f"{name} on {summary['dataset']}", ("measure", "value"), list(rows.items()))
    lines = [_f1_text(summary)] if summary["f1_classes"] else []
    lines += [f"note: {text}" for text in summary["events"]]
    if members := member_rows(summary):
        lines.append("Members of the ensemble (weight, held-out accuracy, time):")
        lines += [f"  {weight}  {name}: {', '.join(rest)}" for name, weight, *rest in members]
    if summary["cross_validation"]:
        lines.append(cross_validation_text(summary["cross_validation"]))
    for line in (*lines, f"run folder: {folder}"):
        typer.echo(printable(line))


def _f1_text(summary: dict[str, Any], most: int = 12) -> str:
    """Return the F1 of each class on one line; of many classes the lowest."""
    shown, which = [row for row in summary["f1_classes"] if row["mean"] is not None], "per class"
    if len(shown) > most:
        which = f"lowest {most} of {len(shown)} classes"
        shown = sorted(shown, key=lambda row: row["mean"])[:most]
    listed = ", ".join(f"{row['class']} {row['mean']:.1f}" for row in shown)
    return f"F1 in % on the {summary['f1_nodes']} nodes, {which}: {listed}."


def spread(part: dict[str, Any], digits: int = 2) -> str:
    if part["mean"] is None:
        return "-"
    mean = f"{part['mean']:.{digits}f}"
    return f"{mean} ± {part['std']:.{digits}f}" if len(part["values"]) > 1 else mean


def _accuracy(row: dict[str, Any]) -> str:
    """Return the accuracy on nodes that the model has not seen, as it is listed."""
    from bvat.training.statistics import FEW_NODES, wilson

    name, found = "test" if row["test"]["mean"] is not None else "val", row["cross_validation"]
    if found and name == "val":
        return f"{found['accuracy']:.1f} [{found['low']:.0f}, {found['high']:.0f}] cv"
    mean, nodes = row[name]["mean"], row["nodes"].get(name, 0)
    few = mean is not None and 0 < nodes < FEW_NODES
    interval = " [{:.0f}, {:.0f}]".format(*wilson(mean, nodes)) if few else ""
    return spread(row[name], 1) + interval + (" val" if name == "val" and mean is not None else "")


def _uncertain(summary: dict[str, Any]) -> list[str]:
    """Return the accuracies on few nodes with their intervals, and the one by cross-validation."""
    from bvat.training.statistics import FEW_NODES, accuracy_text

    nodes, folds = summary["nodes"], summary["cross_validation"]
    lines = [
        f"{word} accuracy: {accuracy_text(summary[name]['mean'], nodes[name], summary[name]['std'])}"
        for name, word in (("val", "validation"), ("test", "test"))
        if 0 < nodes.get(name, 0) < FEW_NODES
    ]
    if folds is not None:
        text = accuracy_text(folds["accuracy"], folds["nodes"], interval=(folds["low"], folds["high"]))
        lines.append(f"cross-validated accuracy: {text}")
    return lines


def _name(row: dict[str, Any]) -> str:
    plain = row["method"] == "none"
    return f"{row['model']}" if plain else f"{row['model']} + {row['method']}"


def _difference(part: dict[str, Any] | None) -> str:
    from bvat.training.statistics import clear_sign

    if part is None:
        return "-"
    if part["n"] < 2:
        return f"{part['mean']:+.2f}"
    text = f"{part['mean']:+.2f} ± {(part['high'] - part['low']) / 2:.2f}"
    return f"{text} *" if clear_sign(part) else text


def _seeds(row: dict[str, Any]) -> str:
    """Return how many seeds a mean is of, of how many if some are damaged, and how many are unfinished."""
    intact, damaged = len(row["seeds"]), len(row["damaged"])
    text = f"{intact} of {intact + damaged}" if damaged else str(intact)
    return text + (f" (+{row['unfinished']})" if row["unfinished"] else "")


def _short(value: Any, length: int) -> str:
    """Return a text of at most some length, without its middle if it is longer."""
    text, half = printable(str(value)), (length - 1) // 2
    return text if len(text) <= length else f"{text[: length - 1 - half]}…{text[-half:]}"
