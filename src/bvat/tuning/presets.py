"""Presets made from the results of searches, so that nobody types them.

python -m bvat.tuning.presets results/tune            # print the preset file with the chosen values
python -m bvat.tuning.presets results/tune --write    # put it into the package
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from bvat.data.files import write_atomic
from bvat.errors import SettingsError
from bvat.training import settings as training_settings

_COMMENT_AT_END = re.compile(r"(?m)(?:^#[^\n]*\n)+\s*\Z")

PRESETS = Path(training_settings.__file__).with_name("presets.toml")


def read_results(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the settings that the searches in a folder chose, by data set and method."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            result = json.loads(path.read_text("utf-8"))
            found[result["dataset"], result["method"]] = dict(result["chosen"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SettingsError(f"{path} is not a result of bvat tune ({error}): move it elsewhere") from None
    if not found:
        raise SettingsError(f"there is no result of bvat tune in {folder}: give the folder of --out")
    return found


def with_results(text: str, results: dict[tuple[str, str], dict[str, Any]]) -> str:
    """Return a preset file with one table ``[dataset.D.M]`` a result, other tables and comments as they are.

    The table of a result replaces one of that name, of which it keeps what the search did not choose: what
    it took as fixed, and what only another way to search reads. New ones follow the data set's own.
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
            comment = _COMMENT_AT_END.search(blocks[at])  # of the table after it
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
    text = with_results(PRESETS.read_text("utf-8"), read_results(Path(rest[0])))
    if write:
        write_atomic(PRESETS, text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
