"""Files of tensors (safetensors) with checksums: inside the file, or listed in a JSON file beside it.

A file that is read as a whole has its checksum inside, as in :mod:`bvat.data.checksums`. Files that are read
memory-mapped, and may be large, are listed with their sha256 instead. Whatever is wrong with the content of a
file is a ValueError.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from bvat.data.checksums import CHECKSUM, DAMAGED, UNSEALED, seal, verify
from bvat.data.files import check_regular, read_regular, write_atomic


def write_safetensors(
    path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str], *, new_folders: bool = True
) -> None:
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomic(path, seal(save(content, {**about, CHECKSUM: UNSEALED})), new_folders=new_folders)


def read_safetensors(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata and the tensors of a file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged. A file without a checksum is not known to be intact.
        DataError: it is not a regular file.
    """
    content = read_regular(path)
    correct = verify(content)
    if correct is False:
        raise ValueError(DAMAGED)
    with _damage():
        tensors = load(content)
    length = int.from_bytes(content[:8], "little")
    about = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    if correct is None and CHECKSUM in about:
        raise ValueError(DAMAGED)
    return about, tensors


def file_digest(path: Path) -> str:
    """Return the sha256 of a regular file, read in pieces."""
    check_regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def map_safetensors(path: Path, digest: str | None) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata and the tensors of a file, memory-mapped; ValueError if it is damaged.

    ``digest`` is its sha256; None leaves it unchecked.
    """
    if digest is not None and file_digest(path) != digest:
        raise ValueError(DAMAGED)
    with _damage(), safe_open(path, framework="pt") as file:
        return file.metadata() or {}, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


@contextmanager
def _damage() -> Iterator[None]:
    """Turn whatever safetensors raises at a damaged file into a ValueError."""
    try:
        yield
    except SafetensorError as error:
        raise ValueError(str(error)) from None
    except (KeyError, RuntimeError) as error:  # an unknown precision, a shape that is too large
        raise ValueError(f"it does not contain tensors: {error}") from None
