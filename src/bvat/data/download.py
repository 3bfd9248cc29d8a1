"""Download over HTTP with short time-outs, limits of time and size, and a progress bar on a terminal."""

from __future__ import annotations

import http.client
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

TIMEOUT = 5.0
"""Seconds to wait for the connection and for each chunk."""
TOTAL = 900.0
"""Seconds that a whole file may take, however steadily its bytes arrive."""
_PIECE = 1 << 16


class Unreachable(Exception):
    """A file could not be fetched; the message says from where and why."""


class Interrupted(Unreachable):
    """The connection was lost before the whole file had arrived."""


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error if it is a terminal; yield a function that takes byte counts."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda count: bar.advance(task, count)


def download(url: str, *, size: int | None, limit: int) -> bytes:
    """Return the content of a URL.

    Args:
        url: http or https; redirects are followed, and proxies from the environment are used.
        size: the expected length, for the progress bar and to detect an interrupted connection.
        limit: refuse to read more bytes than this.

    Raises:
        Unreachable: there is no connection, an HTTP error, the wrong number of bytes, or it takes too long.
    """
    host = urlsplit(url).netloc
    deadline = time.monotonic() + TOTAL
    pieces: list[bytes] = []
    count = 0
    try:
        with (
            _open(url, deadline) as answer,
            progress(url.rsplit("/", 1)[-1], size) as advance,
        ):
            announced = answer.headers.get("Content-Length", "")
            expected = int(announced) if announced.isdecimal() else size
            while piece := answer.read1(_PIECE):  # unlike read, it returns what has arrived
                count += len(piece)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not complete after {TOTAL:g} s")
                if count > limit:
                    raise Unreachable(f"{host}: the file is longer than expected")
                pieces.append(piece)
                advance(len(piece))
    except urllib.error.HTTPError as fault:
        fault.close()
        raise Unreachable(f"{host}: HTTP status {fault.code}") from None
    except urllib.error.URLError as fault:
        raise Unreachable(f"{host}: {getattr(fault.reason, 'strerror', None) or fault.reason}") from None
    except (OSError, http.client.HTTPException) as fault:
        raise Unreachable(f"{host}: {str(fault) or type(fault).__name__}") from None
    if expected is not None and count != expected:
        raise Interrupted(f"{host}: the connection was lost after {count} of {expected} bytes")
    return b"".join(pieces)


def _open(url: str, deadline: float) -> Any:
    """Return the answer; TimeoutError at the deadline, even if the headers arrive byte by byte for ever."""
    found: list[Any] = []

    def work() -> None:
        try:
            found.append(urllib.request.urlopen(url, timeout=TIMEOUT))
        except BaseException as fault:
            found.append(fault)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(max(0.0, deadline - time.monotonic()))
    if not found:
        raise TimeoutError(f"no answer after {TOTAL:g} s")
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]
