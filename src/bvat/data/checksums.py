"""Checksums inside files, so that damage is noticed instead of changing an answer.

A file contains ``sha256:`` and 64 digits somewhere: the sha256 of the file with zeros in their place. JSON
files have them in their last entry, safetensors files in their metadata, ``.npz`` files in the comment of the
archive. ``bvat data check PATH`` verifies the files of a folder.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, deserialize

from bvat.data.files import read_regular, write_atomic

CHECKSUM = "checksum"
"""The name of the entry in JSON files and in the metadata of safetensors files."""
UNSEALED = "sha256:" + 64 * "0"
"""What stands in place of the checksum while it is computed."""
DAMAGED = "its checksum is wrong, the file is damaged"
_PIECE = 2**16
"""Entries of a list that are written at once."""
_MARK = re.compile(rb"sha256:[0-9a-f]{64}")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def seal(content: bytes) -> bytes:
    """Return the content with its checksum where :data:`UNSEALED` is."""
    start = content.rfind(UNSEALED.encode())
    if start < 0:
        raise AssertionError("the content has no place for a checksum")
    end = start + len(UNSEALED)
    return b"".join([content[:start], _mark(content, start, end), content[end:]])


def verify(content: bytes) -> bool | None:
    """Return whether the checksum in the content is right; None if there is none."""
    answer = None
    for found in _MARK.finditer(content):  # a text in the file may look like a checksum too
        if _mark(content, *found.span()) == found[0]:
            return True
        answer = False
    return answer


def _mark(content: bytes, start: int, end: int) -> bytes:
    """Return the checksum of the content with zeros from ``start`` to ``end``."""
    view, found = memoryview(content), hashlib.sha256()
    for part in (view[:start], UNSEALED.encode(), view[end:]):
        found.update(part)
    return f"sha256:{found.hexdigest()}".encode()


def seal_line(content: Mapping[str, Any]) -> bytes:
    """Return an object as one line of JSON with its checksum as the last entry."""
    return seal(json.dumps({**content, CHECKSUM: UNSEALED}, separators=(",", ":")).encode() + b"\n")


def write_sealed_json(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps({**content, CHECKSUM: UNSEALED}, indent=2, allow_nan=False) + "\n"
    write_atomic(path, seal(text.encode()))


def write_sealed_list(path: Path, name: str, values: Sequence[Any]) -> None:
    """Write an object with one list, which may be long, a piece at a time."""
    found = hashlib.sha256()
    with path.open("wb") as file:

        def write(text: str) -> None:
            found.update(text.encode())
            file.write(text.encode())

        write(f"{{{json.dumps(name)}: [")
        for start in range(0, len(values), _PIECE):
            write(", " * (start > 0) + json.dumps(values[start : start + _PIECE])[1:-1])
        write(f'], "{CHECKSUM}": "')
        place = file.tell()
        write(f'{UNSEALED}"}}\n')
        file.seek(place)
        file.write(f"sha256:{found.hexdigest()}".encode())


def read_sealed_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, without its checksum; files without a checksum are read too.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged, or does not contain a JSON object.
        DataError: it is not a regular file.
    """
    content = read_regular(path)
    correct = verify(content)
    try:
        parsed = json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(parsed, dict):
        raise ValueError("it is not a JSON object")
    last = next(reversed(parsed.values()), None)
    # a last entry of this length was a checksum, even if its name or its first letters are damaged
    if correct is False or (correct is None and isinstance(last, str) and len(last) > 60):
        raise ValueError(DAMAGED)
    parsed.pop(CHECKSUM, None)
    return parsed


@dataclass(frozen=True)
class ChecksumCheck:
    """A file and whether its checksum is right: True, False, or None if it has none."""

    name: str
    ok: bool | None


def check_files(path: Path) -> tuple[ChecksumCheck, ...]:
    """Verify the checksums of a file, or of all files in a folder.

    A file is verified by the checksum it contains, or by the one that a JSON file beside it lists under
    ``files``, as in run folders. Other files (pages, tables for people) have none.
    """
    root = path if path.is_dir() else path.parent
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    listed: dict[Path, str] = {}
    for file in {*files, *path.parent.glob("*.json")} if path.is_file() else files:
        if file.suffix == ".json":
            with suppress(OSError, ValueError, AttributeError):
                listed |= {file.parent / k: v for k, v in read_sealed_json(file).get("files", {}).items()}
    return tuple(ChecksumCheck(str(file.relative_to(root)), _is_intact(file, listed)) for file in files)


def _is_intact(file: Path, listed: dict[Path, str]) -> bool | None:
    try:
        content = file.read_bytes()
        if file in listed:
            return sha256(content) == listed[file]
        if file.suffix == ".json":
            read_sealed_json(file)
        if file.suffix == ".safetensors":
            deserialize(content)  # type: ignore[no-untyped-call]
        if file.suffix == ".npz" and not zipfile.is_zipfile(file):
            return False
        return verify(content)
    except (OSError, ValueError, SafetensorError):
        return False
