"""Presets written from the results of ``bvat tune``.

python -m bvat.tuning.presets results/tune            # print the new preset file
python -m bvat.tuning.presets results/tune --write    # write it into the package
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from bvat.data.checksums import read_sealed_json
from bvat.data.files import write_atomic
from bvat.errors import SettingsError
from bvat.training import settings as training_settings

_COMMENT_AT_END = re.compile(r"(?m)(?:^#[^\n]*\n)+\s*\Z")

PRESETS = Path(training_settings.__file__).with_name("presets.toml")


def read_tuning_results(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the chosen settings of all results in a folder, by data set and method."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            result = read_sealed_json(path)
            found[result["dataset"], result["method"]] = dict(result["chosen"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SettingsError(f"{path} is not a result of bvat tune ({error}): move it elsewhere") from None
    if not found:
        raise SettingsError(f"there is no result of bvat tune in {folder}: give the folder of --out")
    return found


def with_results(text: str, results: dict[tuple[str, str], dict[str, Any]]) -> str:
    """Return a preset file with one table ``[dataset.D.M]`` per result; other tables and comments stay.

    A result updates an existing table, which keeps the settings that the search did not choose: those that
    were fixed, and those that apply to another search only. A new table follows the last one of its data set.
    """
    blocks = re.split(r"(?m)^(?=\[)", text)
    heads = [_head(block) for block in blocks]
    for (dataset, method), chosen in results.items():
        head = f"dataset.{dataset}.{method}"
        before = tomllib.loads(text).get("dataset", {}).get(dataset, {}).get(method, {})
        block = f"[{head}]\n" + "".join(
            f"{name} = {_toml(value)}\n" for name, value in {**before, **chosen}.items()
        )
        if head in heads:
            at = heads.index(head)
            comment = _COMMENT_AT_END.search(blocks[at])  # belongs to the next table
            blocks[at] = block + "\n" + (comment[0] if comment else "")
            continue
        family = [i for i, h in enumerate(heads) if f"{h}.".startswith(f"dataset.{dataset}.")]
        place = family[-1] + 1 if family else len(blocks)
        blocks.insert(place, block + "\n")
        heads.insert(place, head)
    return "\n\n".join(block.strip() for block in blocks if block.strip()) + "\n"


def _head(block: str) -> str:
    found = re.match(r"\[([^\]]+)\]", block)
    return found[1] if found else ""


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def main(arguments: list[str]) -> None:
    """Print or write the preset file."""
    write = "--write" in arguments
    rest = [argument for argument in arguments if argument != "--write"]
    if len(rest) != 1:
        raise SystemExit("usage: python -m bvat.tuning.presets FOLDER [--write]")
    text = with_results(PRESETS.read_text("utf-8"), read_tuning_results(Path(rest[0])))
    if write:
        write_atomic(PRESETS, text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
