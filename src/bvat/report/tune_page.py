"""The page of ``bvat tune``: what was chosen, which settings matter, and the trials."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from bvat.report.charts import Chart, Line, bar_chart, line_chart
from bvat.report.pages import Cell, render
from bvat.tuning.space import applying
from bvat.tuning.variants import Variant

VALUE = "validation accuracy (%)"


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
        finalists=[
            [entry["from"] + " (chosen)" * (entry["from"] == result["chosen_from"]), *_row(entry)]
            for entry in result["finalists"]
        ],
        history=_history(complete),
        importance=_importance(result["importance"]),
        charts=_setting_charts(result, complete),
        trials=[[trial["number"], trial["state"], *_row(trial)] for trial in trials],
        settings={"fixed": result["fixed"]},
    )


def _row(entry: dict[str, Any]) -> list[Any]:
    """Return the validation accuracy, the number of seeds and the settings of a trial or a finalist."""
    val, words = entry["val"], ", ".join(f"{name} {value}" for name, value in entry["settings"].items())
    if val is None:
        return ["", 0, Cell(words)]
    spread = f" ± {val['std']:.2f}" if val["n"] > 1 else ""
    return [f"{val['mean']:.2f}{spread}", val["n"], Cell(words)]


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
    given = [result["fixed"] | trial["settings"] for trial in complete]
    spans = {name: span for values in given for name, _, span in applying(result["space"], values)}
    order = [*result["importance"], *sorted(spans.keys() - result["importance"].keys())]
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
