"""The page of ``bvat tune``: what was chosen, which settings matter, and the trials."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from bvat.data.checksums import read_sealed_json
from bvat.data.files import write_atomic
from bvat.errors import DataError
from bvat.report.charts import Chart, Line, bar_chart, line_chart
from bvat.report.pages import Cell, render
from bvat.tuning.space import tuned_settings
from bvat.tuning.variants import Variant

VALUE = "validation accuracy (%)"


def write_tune_page(path: Path) -> Path:
    """Write the page beside a result of ``bvat tune``; return its path."""
    try:
        result = read_sealed_json(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}): run bvat tune again") from None
    write_atomic(path.with_suffix(".html"), tune_page(result))
    return path.with_suffix(".html")


def tune_page(result: dict[str, Any]) -> str:
    trials = result["trials"]
    complete = [trial for trial in trials if trial["state"] == "complete"]
    title = Variant(result["model"], result["method"]).title
    runs = sum(trial["val"]["n"] for trial in trials if trial["val"] is not None)
    return render(
        "tune.html",
        title=f"Settings of {title} on {result['dataset']}",
        result=result,
        counts={
            "trials": len(trials),
            "stopped early": sum(trial["state"] == "pruned" for trial in trials),
            "runs of trials": runs,
            "of at most": len(trials) * len(result["trial_seeds"]),
            "validation nodes": f"{result['graph']['val']:,}",
        },
        finalists=[_finalist(entry, result) for entry in result["finalists"]],
        history=_history(complete),
        importance=_importance(result["importance"]),
        charts=_setting_charts(result, complete),
        trials=[_trial(trial) for trial in trials],
        settings={"fixed": result["fixed"]},
    )


def _finalist(entry: dict[str, Any], result: dict[str, Any]) -> list[Any]:
    name = entry["from"] + (" (chosen)" if entry["from"] == result["chosen_from"] else "")
    return [name, _accuracy(entry["val"]), Cell(_words(entry["settings"]))]


def _trial(trial: dict[str, Any]) -> list[Any]:
    seeds = 0 if trial["val"] is None else trial["val"]["n"]
    return [trial["number"], trial["state"], _accuracy(trial["val"]), seeds, Cell(_words(trial["settings"]))]


def _accuracy(val: dict[str, Any] | None) -> str:
    if val is None:
        return ""
    return f"{val['mean']:.2f}" + (f" ± {val['std']:.2f}" if val["n"] > 1 else "")


def _words(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def _history(complete: Sequence[dict[str, Any]]) -> Chart:
    """Draw the value of every complete trial, and the best so far."""
    numbers = [trial["number"] for trial in complete]
    values = [trial["val"]["mean"] for trial in complete]
    best = Line("best so far", numbers, list(accumulate(values, max)), colour=1)
    points = Line("complete trial", numbers, values, alone=True)
    return line_chart([points, best], "trial", VALUE, title="Trials")


def _importance(shares: dict[str, float]) -> Chart | None:
    if not shares:
        return None
    groups = {name: {"share": share} for name, share in shares.items()}
    looks = {"share": ("share of the variance of the validation accuracy", 0)}
    width = max(440, 90 * len(groups))
    return bar_chart(groups, "importance", title="Importance", looks=looks, width=width)


def _setting_charts(result: dict[str, Any], complete: Sequence[dict[str, Any]]) -> list[Chart]:
    """Draw the validation accuracy against the value of each setting, the most important first."""
    spans = _spans(result["space"])
    order = [*result["importance"], *sorted(tuned_settings(result["space"]) - result["importance"].keys())]
    charts = []
    for name in order:
        tried = [trial for trial in complete if name in trial["settings"]]
        if tried:
            x, y = [trial["settings"][name] for trial in tried], [trial["val"]["mean"] for trial in tried]
            choices = spans[name].get("choices", ())
            names = list(dict.fromkeys(map(str, (*choices, *x)))) if choices else []
            points = Line("complete trial", [names.index(str(v)) for v in x] if names else x, y, alone=True)
            log = bool(spans[name].get("log"))
            charts.append(line_chart([points], name, VALUE, title=name, log_x=log, x_ticks=names))
    return charts


def _spans(space: dict[str, Any]) -> dict[str, dict[str, Any]]:
    branches = [part for parts in space.get("when", {}).values() for part in parts.values()]
    return {name: span for part in (space, *branches) for name, span in part.items() if name != "when"}
