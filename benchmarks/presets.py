"""Presets from the results of ``bvat tune``.

python benchmarks/presets.py results/tune            # print the new preset file
python benchmarks/presets.py results/tune --write    # write it into the package
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from bvat.data.checksums import read_sealed_json
from bvat.data.files import write_atomic
from bvat.errors import SettingsError
from bvat.training import settings as training_settings
from bvat.tuning.space import toml_lines

PRESETS = Path(training_settings.__file__).with_name("presets.toml")


def read_tuning_results(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            result = read_sealed_json(path)
            if result.get("model", "gcn") == "gcn":  # the tables of other models are not searched
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
    for (dataset, method), chosen in results.items():
        heads = [block[1:].partition("]")[0] if block.startswith("[") else "" for block in blocks]
        head = f"dataset.{dataset}.{method}"
        before = tomllib.loads(text).get("dataset", {}).get(dataset, {}).get(method, {})
        block = f"[{head}]\n{toml_lines({**before, **chosen})}\n"
        if head in heads:
            at = heads.index(head)
            comment = re.search(r"(?m)(?:^#[^\n]*\n)+\s*\Z", blocks[at])  # belongs to the next table
            blocks[at] = block + (comment[0] if comment else "")
        else:
            family = [i for i, h in enumerate(heads, 1) if f"{h}.".startswith(f"dataset.{dataset}.")]
            blocks.insert(max(family, default=len(blocks)), block)
    return "\n\n".join(filter(None, map(str.strip, blocks))) + "\n"


def main(arguments: list[str]) -> None:
    folders = [argument for argument in arguments if argument != "--write"]
    if len(folders) != 1:
        raise SystemExit("usage: python benchmarks/presets.py FOLDER [--write]")
    text = with_results(PRESETS.read_text("utf-8"), read_tuning_results(Path(folders[0])))
    if "--write" in arguments:
        write_atomic(PRESETS, text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
