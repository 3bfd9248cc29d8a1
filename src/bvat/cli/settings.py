"""``bvat settings``."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Annotated, Any

from typer import Argument

from bvat.baselines.table import BASELINES, all_methods
from bvat.cli import common
from bvat.cli.common import Json
from bvat.errors import SettingsError
from bvat.models.table import MODELS
from bvat.perturb.methods import METHODS
from bvat.training.options import Training
from bvat.training.settings import all_fields, owners, preset


def settings(
    names: Annotated[
        list[str] | None, Argument(metavar="[MODEL] [METHOD]", help="a model, a method, or both")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the settings: defaults for any graph, ranges, and which models and methods have them.

    All of them are options of bvat train, keywords of bvat.preset and
    bvat.NodeClassifier, and keys of a file for --settings.

    Examples:

      bvat settings

      bvat settings gat obvat

      bvat settings vat --json
    """
    model, method = _named(names or [])
    rows = _rows(model, method)
    if as_json:
        common.print_json({"model": model, "method": method, "settings": rows})
        return
    what = " and ".join(name for name in (model, method) if name) or "all models and methods"
    common.print_lines(f"Settings of {what}", [*list(rows[0])[:-1], ""], [list(row.values()) for row in rows])


def _named(names: list[str]) -> tuple[str | None, str | None]:
    model = next((name for name in names if name in MODELS), None)
    method = next((name for name in names if name in all_methods()), None)
    for name in names:
        if name not in (model, method):
            raise SettingsError(
                f"there is no model or method {name!r} to list beside others: use at most one model "
                f"({', '.join(MODELS)}) and one method ({', '.join(all_methods())})"
            )
    return model, method


def _rows(model: str | None, method: str | None) -> list[dict[str, Any]]:
    """Return the settings of all, or those of a model, of a method or of both together."""
    every = all_fields()
    if not model and not method:
        return [_row(name, f, f.default) for name, f in every.items()]
    if method is not None and method in BASELINES:
        chosen, has = preset("", method), set(preset("", method).read())
    else:
        chosen = preset("", method or "none", model=model or "gcn")
        has = set(chosen.as_dict())
    asked = {f.name for f in fields(Training)}
    asked |= (_of_models() if model else set()) | (every.keys() - _of_models() if method else set())
    return [_row(name, f, getattr(chosen, name)) for name, f in every.items() if name in asked & has]


def _of_models() -> set[str]:
    return {name for row in MODELS.values() for name in row.arguments}


def _row(name: str, f: Field[Any], default: Any) -> dict[str, Any]:
    whose = owners().get(name, ("all",))
    every = len(whose) == len(MODELS if name in _of_models() else METHODS)
    shown = "all" if every else ", ".join(whose)
    return {"name": name, "default": default, "values": _values(f), "of": shown, "help": f.metadata["help"]}


def _values(f: Field[Any]) -> str:
    limits = f.metadata
    if limits["choices"]:
        return " | ".join(limits["choices"])
    if isinstance(f.default, (bool, str)):
        return "on | off" if isinstance(f.default, bool) else "text"
    signs = {"at_least": ">=", "above": ">", "at_most": "<=", "below": "<"}
    return " ".join(f"{sign} {limits[key]}" for key, sign in signs.items() if key in limits)
